"""Failures that pass: remembered as long as the store is open, and no longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.export import write_export
from sartor.tuning.store.store import Store
from tests.tuning.store.store_samples import KEY

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
