"""What every store does."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.records.measurement import Status
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import FAILURE, KEY, MEASUREMENT, keyed, of_here


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "tuning.db") if request.param == "file" else Store.in_memory() as store:
        yield store


def test_measurements_come_back_bit_by_bit(store: Store) -> None:
    store.put(MEASUREMENT)
    store.put(FAILURE)
    assert store.get(KEY) == MEASUREMENT
    assert store.get(FAILURE.key) == FAILURE


@pytest.mark.parametrize("status", Status)
def test_every_status_and_error_is_kept(store: Store, status: Status) -> None:
    for error in (None, 0.0, math.inf):
        store.put(replace(MEASUREMENT, status=status, error=error))
        assert store.get(KEY) == replace(MEASUREMENT, status=status, error=error)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "TASK"},
        {"variant": "cpu:f32/conv2d.nhwc{tile=8}"},
        {"source": "source "},
        {"hardware": "other"},
        {"threads": 2},
        {"runtime": "runtime 2"},
        {"backend": "vulkan/llvmpipe"},
    ],
)
def test_a_key_that_differs_anywhere_does_not_match(store: Store, change: dict[str, object]) -> None:
    store.put(MEASUREMENT)
    assert store.get(replace(KEY, **change)) is None  # type: ignore[arg-type]


def test_the_latest_measurement_of_a_key_is_kept(store: Store) -> None:
    store.put(MEASUREMENT)
    store.put(replace(MEASUREMENT, samples=(9.0,)))
    assert store.get(KEY) == replace(MEASUREMENT, samples=(9.0,))
    assert store.summary()[0].measurements == 1


def test_get_many_returns_what_there_is_in_the_order_asked_for(store: Store) -> None:
    store.put_many([MEASUREMENT, FAILURE])
    missing = replace(KEY, task="never measured")
    found = store.get_many([FAILURE.key, missing, KEY])
    assert list(found.items()) == [(FAILURE.key, FAILURE), (KEY, MEASUREMENT)]


def test_summary_counts_by_machine_and_runtime(store: Store) -> None:
    other = replace(KEY, hardware="another machine", threads=8)
    store.put_many([MEASUREMENT, FAILURE, replace(MEASUREMENT, key=other)])
    elsewhere, here = store.summary()
    assert (elsewhere.hardware, elsewhere.threads, elsewhere.measurements) == ("another machine", 8, 1)
    assert (here.hardware, here.runtime, here.backend, here.threads) == (
        "machine",
        "runtime 1",
        "cpu/host",
        1,
    )
    assert (here.tasks, here.variants, here.measurements, here.failures) == (1, 2, 2, 1)
    assert (here.oldest, here.newest) == (1000.5, 2000.0)
    assert 0 < here.data_bytes < store.size_bytes


def test_summary_of_an_empty_store(store: Store) -> None:
    assert store.summary() == ()


def test_summary_knows_what_is_used_here(store: Store) -> None:
    here = of_here(MEASUREMENT)
    store.put_many([here, keyed(here, hardware="other"), keyed(here, runtime="older")])
    used = {(row.hardware, row.runtime): row.used_here for row in store.summary()}
    assert used == {
        (here.key.hardware, here.key.runtime): True,
        ("other", here.key.runtime): False,
        (here.key.hardware, "older"): False,
    }


def test_measurements_come_in_the_order_of_their_keys(store: Store) -> None:
    here = of_here(MEASUREMENT)
    store.put_many([FAILURE, here, MEASUREMENT, keyed(MEASUREMENT, task="a")])
    everything = list(store.measurements())
    assert [each.key for each in everything] == sorted(each.key for each in everything)
    assert len(everything) == 4
    assert list(store.measurements(here_only=True)) == [here]


def test_a_scratch_copy_is_a_store_of_its_own(store: Store) -> None:
    store.put(MEASUREMENT)
    with store.scratch_copy() as copy:
        assert copy.get(KEY) == MEASUREMENT
        copy.put(FAILURE)
    assert store.get(FAILURE.key) is None


_LOOK = """
import sys
from pathlib import Path
from sartor.tuning.store.store import Store
with Store.open(Path(sys.argv[1])) as store:
    print(len(list(store.measurements())))
"""


def test_two_stores_of_one_process_do_not_end_each_others_locks(tmp_path: Path) -> None:
    """Another process, which opens and closes the file meanwhile, would take its log away."""
    path = tmp_path / "tuning.db"

    def seen_elsewhere() -> int:
        done = subprocess.run([sys.executable, "-c", _LOOK, path], check=True, capture_output=True, text=True)
        return int(done.stdout)

    with Store.open(path) as one, Store.open(path) as other:
        assert seen_elsewhere() == 0
        one.put(MEASUREMENT)
        assert seen_elsewhere() == 1
        assert other.get(KEY) == MEASUREMENT
        assert path.with_name("tuning.db-wal").exists()
