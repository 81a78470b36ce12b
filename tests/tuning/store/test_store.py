"""What every store does, what is known of a task, and measurements as CSV."""

from __future__ import annotations

import csv
import io
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.store import Store
from sartor.tuning.store.table import COLUMNS, is_table, write_table
from sartor.tuning.store.tasks import TaskResult, task_results
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


def _rows(*measurements: Measurement) -> list[dict[str, str]]:
    file = io.StringIO()
    assert write_table(file, measurements) == len(measurements)
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def _key(variant: str) -> MeasurementKey:
    return MeasurementKey("task", variant, "source", "machine, of 2 cores", 2, "versions", "cpu:host/0")


def test_a_row_has_the_parts_of_the_variant_and_a_summary_of_its_times() -> None:
    times = (4.0, 1.0, 2.0, 3.0, 5.0)
    (row,) = _rows(Measurement(_key("cpu:f32/conv2d.tiled{depth=4,rows=2}"), Status.OK, times, (8.0,), error=0.5))
    assert tuple(row) == COLUMNS
    assert [row[name] for name in ("device", "dtype", "operation", "routine")] == ["cpu", "f32", "conv2d", "tiled"]
    names = ("seconds", "least", "median", "upper_quartile", "samples", "stock_seconds", "error")
    assert [float(row[name]) for name in names] == [2, 1, 3, 4, 5, 8, 0.5]
    assert row["hardware"] == "machine, of 2 cores"


def test_failures_have_no_times() -> None:
    message = 'a "quoted"\nline'
    (row,) = _rows(Measurement(_key("plan:1"), Status.CRASHED, error=math.inf, message=message))
    assert (row["status"], row["seconds"], row["device"], row["error"]) == ("crashed", "", "", "inf")
    assert row["message"] == message


def test_no_cell_is_a_formula() -> None:
    (row,) = _rows(Measurement(_key("=HYPERLINK(1)"), Status.CRASHED, message="-1+1"))
    assert (row["variant"], row["message"]) == ("'=HYPERLINK(1)", "'-1+1")


def test_a_table_is_recognised(tmp_path: Path) -> None:
    with (tmp_path / "table.csv").open("w", encoding="utf-8", newline="") as file:
        write_table(file, [])
    assert is_table(tmp_path / "table.csv")
    (tmp_path / "other.csv").write_text("a,b\n")
    assert not is_table(tmp_path / "other.csv")


TASKS_KEY = MeasurementKey("task", "stock", "source", "machine", 1, "runtime", "cpu:host")


def measured(variant: str, seconds: float, baseline: float | None = None, **key: object) -> Measurement:
    samples = () if baseline is None else (baseline,)
    changed = replace(TASKS_KEY, variant=variant, **key)  # type: ignore[arg-type]
    return Measurement(changed, Status.OK, (seconds,), samples, created=1.0)


def results(*measurements: Measurement) -> list[TaskResult]:
    return list(task_results(sorted(measurements, key=lambda measurement: measurement.key)))


def name(result: TaskResult) -> str | None:
    return result.best.key.variant if result.best else None


def test_variants_compare_by_their_ratio_to_the_stock_of_the_same_run() -> None:
    lucky, better = measured("lucky", 1.0, baseline=1.0), measured("better", 1.5, baseline=4.0)
    (result,) = results(measured("stock", 2.0), lucky, better)
    assert name(result) == "better"
    assert result.seconds == pytest.approx(0.75)
    assert result.stock_seconds == 2.0


def test_stock_may_be_the_best() -> None:
    (result,) = results(measured("stock", 2.0), measured("a", 3.0, baseline=2.0))
    assert (name(result), result.seconds, result.stock_seconds) == ("stock", 2.0, 2.0)


def test_what_was_compared_with_nothing_has_no_stock_time() -> None:
    (result,) = results(measured("plan:1", 3.0), measured("unsplit", 4.0), measured("plan:1:in-place", 0.1))
    assert (name(result), result.seconds, result.stock_seconds) == ("plan:1", 3.0, None)
    assert len(result.variants) == 2


def test_without_its_stock_a_task_still_has_a_best() -> None:
    (result,) = results(measured("a", 3.0, baseline=2.0), measured("b", 1.0, baseline=2.0))
    assert (name(result), result.seconds, result.stock_seconds) == ("b", 1.0, 2.0)


def test_failures_are_never_the_best() -> None:
    crashed = Measurement(replace(TASKS_KEY, variant="a"), Status.CRASHED, message="SIGSEGV", created=1.0)
    (result,) = results(crashed, measured("stock", 2.0))
    assert name(result) == "stock"
    assert result.failures == (crashed,)
    (alone,) = results(crashed)
    assert (alone.best, alone.seconds, alone.stock_seconds) == (None, None, None)


def test_only_the_latest_code_of_a_variant_counts() -> None:
    old = measured("a", 0.1, baseline=2.0, source="old")
    new = replace(measured("a", 1.0, baseline=2.0, source="new"), created=2.0)
    (result,) = results(old, new, measured("stock", 2.0))
    assert (result.best, len(result.variants)) == (new, 2)


def test_every_place_and_task_has_its_own_result() -> None:
    found = results(
        measured("stock", 2.0),
        measured("stock", 1.0, threads=2),
        measured("stock", 3.0, hardware="other"),
        measured("stock", 4.0, task="another"),
    )
    assert [each.seconds for each in found] == [4.0, 2.0, 1.0, 3.0]


@pytest.mark.parametrize("part", ["in-place", "in-place:e7f00bb0", "first", "verified", "searched"])
def test_parts_of_a_network_are_not_the_network(part: str) -> None:
    (result,) = results(measured("plan:1", 3.0), measured(f"plan:1:{part}", 0.1))
    assert (name(result), result.seconds, len(result.variants)) == ("plan:1", 3.0, 1)
