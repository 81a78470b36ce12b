"""Pruning: by condition, by size, and that the file really shrinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.records.measurement import Status
from sartor.tuning.store.prune import Pruning
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT, keyed
from tests.tuning.store.store_writer import measurement


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    with Store.open(path) if request.param == "file" else Store.in_memory() as store:
        yield store


def test_what_meets_all_conditions_goes(store: Store) -> None:
    other = keyed(MEASUREMENT, hardware="other")
    stale = keyed(MEASUREMENT, runtime="runtime 0")
    store.put_many([MEASUREMENT, FAILURE, other, stale])
    assert store.prune(Pruning(created_before=1500.0, hardware_other_than="machine")) == 1
    assert store.prune(Pruning(runtime_other_than="runtime 1")) == 1
    assert store.prune(Pruning(created_before=1500.0)) == 1
    assert list(store.get_many([KEY, FAILURE.key, other.key, stale.key])) == [FAILURE.key]


def test_measurements_on_gpus_of_a_machine_are_its_own(store: Store) -> None:
    gpu, other = (keyed(MEASUREMENT, hardware=name) for name in ("machine + vulkan:llvmpipe", "machine 2"))
    store.put_many([MEASUREMENT, gpu, other])
    assert store.prune(Pruning(hardware_other_than="machine")) == 1
    assert set(store.get_many([KEY, gpu.key, other.key])) == {KEY, gpu.key}


def test_statuses_are_one_condition_among_others(store: Store) -> None:
    crashed = keyed(FAILURE, hardware="other")
    timeout = replace(keyed(FAILURE, runtime="runtime 0"), status=Status.TIMEOUT)
    store.put_many([MEASUREMENT, FAILURE, crashed, timeout])
    assert FAILURE.status not in (Status.OK, Status.TIMEOUT)
    assert store.prune(Pruning(statuses=(FAILURE.status, Status.TIMEOUT), hardware_other_than="machine")) == 1
    assert store.prune(Pruning(statuses=(Status.WRONG_RESULT,))) == (FAILURE.status is Status.WRONG_RESULT)
    assert store.prune(Pruning(statuses=(FAILURE.status, Status.TIMEOUT))) == 2
    assert list(store.get_many([KEY, FAILURE.key, crashed.key, timeout.key])) == [KEY]


def test_pruning_without_a_condition_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="condition"):
        Pruning()


def test_the_file_shrinks(path: Path) -> None:
    with Store.open(path) as store:
        store.put_many(measurement(index) for index in range(200))
        before = store.size_bytes
        assert store.prune(Pruning(created_before=5000.0)) == 200
        assert path.stat().st_size < before / 10, "also while it is open"
    assert path.stat().st_size < before / 10


def test_size_takes_the_oldest_and_no_more_than_needed(path: Path) -> None:
    order = [(7 * index) % 300 for index in range(300)]
    with Store.open(path) as store:
        store.put_many(measurement(index) for index in order)
        limit = store.size_bytes // 2
        removed = store.prune(Pruning(max_bytes=limit))
        left = [each.created for each in store.measurements()]
    assert sorted(left) == [float(index) for index in range(removed, 300)]
    assert 0.9 * limit < path.stat().st_size <= limit


def test_a_size_that_is_met_takes_nothing(store: Store) -> None:
    store.put_many(measurement(index) for index in range(50))
    store.prune(Pruning(created_before=0.0))
    assert store.prune(Pruning(max_bytes=store.size_bytes)) == 0
    assert store.prune(Pruning(max_bytes=store.size_bytes - 1)) > 0


def test_measurements_of_one_moment_go_one_by_one(store: Store) -> None:
    store.put_many(replace(measurement(index), created=5.0) for index in range(300))
    removed = store.prune(Pruning(max_bytes=store.size_bytes // 2))
    assert 100 < removed < 200


def test_no_size_is_too_small(store: Store) -> None:
    store.put_many(measurement(index) for index in range(50))
    assert store.prune(Pruning(max_bytes=0)) == 50
    assert store.summary() == ()
    assert store.prune(Pruning(max_bytes=0)) == 0


def test_age_goes_before_size(store: Store) -> None:
    store.put_many(measurement(index) for index in range(100))
    size = store.size_bytes
    assert store.prune(Pruning(created_before=60.0, max_bytes=size // 2)) == 60
