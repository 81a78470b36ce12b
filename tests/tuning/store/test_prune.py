"""What leaves a store: by condition and size, and failures that pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.export import write_export
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


OK = Measurement(KEY, Status.OK, (1.0,), created=100.0)
TRANSIENT = [
    *(Measurement(KEY, status, message="killed", created=200.0) for status in Status if status.is_transient),
    # As older versions wrote them.
    Measurement(KEY, Status.OUT_OF_MEMORY, message="the process ran out of memory", created=200.0),
    Measurement(KEY, Status.CRASHED, message="OSError: [Errno 28] No space left on device: '/tmp/x'", created=200.0),
    Measurement(KEY, Status.COMPILE_FAILED, message="IO failure: No space left on device", created=200.0),
]
LASTING = [
    Measurement(KEY, Status.CRASHED, message="the process was killed by SIGSEGV", created=200.0),
    Measurement(KEY, Status.OUT_OF_MEMORY, message="MemoryError: Unable to allocate 9 GiB", created=200.0),
    Measurement(KEY, Status.OUT_OF_MEMORY, message="the process ran out of memory; std::bad_alloc", created=200.0),
    Measurement(KEY, Status.COMPILE_FAILED, message="no such op", created=200.0),
    Measurement(KEY, Status.TIMEOUT, message="still running after 60 s, killed", created=200.0),
    Measurement(KEY, Status.WRONG_RESULT, error=0.5, created=200.0),
]


def names(measurements: list[Measurement]) -> list[str]:
    return [f"{measurement.status.value}: {measurement.message[:20]}" for measurement in measurements]


@pytest.mark.parametrize("failure", TRANSIENT, ids=names(TRANSIENT))
def test_what_is_transient_is_forgotten_with_the_store(tmp_path: Path, failure: Measurement) -> None:
    assert failure.is_transient
    with Store.open(tmp_path / "t.db") as store:
        store.put(failure)
        assert store.get(KEY) == failure
        assert store.get_many([KEY]) == {KEY: failure}
        assert list(store.measurements()) == []
    with Store.open(tmp_path / "t.db") as store:
        assert store.get(KEY) is None
        store.put(failure)
        store.put(OK)
        assert store.get(KEY) == OK


@pytest.mark.parametrize("failure", TRANSIENT, ids=names(TRANSIENT))
def test_what_is_transient_replaces_nothing(tmp_path: Path, failure: Measurement) -> None:
    with Store.open(tmp_path / "t.db") as store:
        store.put(OK)
        store.put(failure)
        assert store.get(KEY) == OK


@pytest.mark.parametrize("failure", LASTING, ids=names(LASTING))
def test_what_lasts_is_kept(tmp_path: Path, failure: Measurement) -> None:
    assert not failure.is_transient
    with Store.open(tmp_path / "t.db") as store:
        store.put(OK)
        store.put(failure)
    with Store.open(tmp_path / "t.db") as store:
        assert store.get(KEY) == failure


def test_older_versions_rows_that_say_nothing_count_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, Store.open(tmp_path / "t.db") as store:
        patch.setattr(Measurement, "is_transient", False)
        store.put(TRANSIENT[-1])
    with Store.open(tmp_path / "t.db") as store:
        assert len(list(store.measurements())) == 1
        assert store.get(KEY) is None


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("failure", "stays"),
    [*((each, OK) for each in TRANSIENT), *((each, None) for each in LASTING)],
    ids=names([*TRANSIENT, *LASTING]),
)
def test_a_success_outlives_newer_failures_that_may_have_passed(
    tmp_path: Path, failure: Measurement, stays: Measurement | None, order: int
) -> None:
    weak = failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY)
    exports = [tmp_path / "ok.jsonl", tmp_path / "failure.jsonl"]
    for path, each in zip(exports, (OK, failure), strict=True):
        with path.open("w", encoding="ascii") as text:
            write_export(text, [each])
    with Store.in_memory() as store:
        for path in exports[::order]:
            store.merge([path])
        assert store.get(KEY) == (OK if weak else stays or failure)
        before = list(store.measurements())
        store.merge(exports)
        assert list(store.measurements()) == before


def test_of_two_time_outs_the_newer_stays(tmp_path: Path) -> None:
    timeouts = [replace(LASTING[4], created=created) for created in (10.0, 20.0)]
    for number, timeout in enumerate(timeouts):
        with (tmp_path / f"{number}.jsonl").open("w", encoding="ascii") as text:
            write_export(text, [timeout])
    with Store.in_memory() as store:
        store.merge([tmp_path / "1.jsonl", tmp_path / "0.jsonl"])
        assert store.get(KEY) == timeouts[1]
