"""Calls of functions in a worker: how they are named, what they share, and what comes back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import CompileError, DeviceError, SartorError, UsageError
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.workers import entry_points
from sartor.tuning.workers.calls import call, call_each, call_until_done
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.shared_arrays import StoredArrays
from tests.tuning.workers.call_jobs import Counted, count_on, is_collecting, lose_device, process


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as opened:
        yield opened


def test_a_call_returns_what_the_function_does(pool: WorkerPool) -> None:
    assert call(pool, count_on, {"before": Counted((0, 1)), "seconds": 1.0}, "counting") == Counted((0, 1, 2))


def test_results_of_several_calls_are_in_their_order(pool: WorkerPool) -> None:
    several = [{"before": Counted((0,) * count), "seconds": 1.0} for count in (3, 1, 2)]
    assert [each.done for each in call_each(pool, count_on, several, "counting")] == [4, 2, 3]
    assert call_each(pool, count_on, [], "counting") == []


def test_the_first_of_several_calls_that_fails_is_told(pool: WorkerPool) -> None:
    several = [{"before": Counted(), "seconds": 1.0, "refused": refused} for refused in (5, 0)]
    with pytest.raises(UsageError, match="0 is refused"):
        call_each(pool, count_on, several, "counting")


def test_garbage_is_looked_for_while_a_job_runs(pool: WorkerPool) -> None:
    assert call(pool, is_collecting, {}, "looking")


def test_a_crash_says_what_was_being_done(pool: WorkerPool) -> None:
    with pytest.raises(CompileError, match="counting"):
        call(pool, count_on, {"before": Counted(), "seconds": 0.0}, "counting")


def test_a_job_goes_on_from_call_to_call_until_it_is_done(pool: WorkerPool) -> None:
    told: list[tuple[str, int, int]] = []
    found = call_until_done(
        pool, count_on, {}, Counted(), 3, "counting", progress=lambda *each: told.append(each), seconds=1.0
    )
    assert found == Counted((0, 1, 2))
    assert told == [("counting", done, 3) for done in range(4)]


def test_a_job_that_is_done_is_not_called(pool: WorkerPool) -> None:
    told: list[tuple[str, int, int]] = []
    done = Counted((0, 1))
    tell = told.append
    assert call_until_done(pool, count_on, {}, done, 2, "counting", progress=lambda *each: tell(each)) is done
    assert told == [("counting", 2, 2)]


def test_a_refusal_on_the_way_is_raised(pool: WorkerPool) -> None:
    with pytest.raises(UsageError, match="1 is refused"):
        call_until_done(pool, count_on, {"refused": 1}, Counted(), 3, "counting", progress=lambda *_: None, seconds=1.0)


@pytest.mark.parametrize(("is_raised", "error"), [(True, CompileError), (False, DeviceError)])
def test_after_a_device_failed_its_process_is_replaced(
    is_raised: bool, error: type[SartorError], pool: WorkerPool
) -> None:
    """It may be lost, for whatever runs there: that a job returns its error makes no difference."""
    before = call(pool, process, {}, "asking")
    assert call(pool, process, {}, "asking") == before
    with pytest.raises(error, match="VK_ERROR_DEVICE_LOST"):
        call(pool, lose_device, {"is_raised": is_raised}, "losing it")
    assert call(pool, process, {}, "asking") != before


def test_the_name_leads_back_to_the_function() -> None:
    module, name = entry_point(entry_point).split(":")
    assert getattr(import_module(module), name) is entry_point
    assert module == entry_points.__name__


def test_what_a_worker_cannot_import_is_refused() -> None:
    def within() -> None:
        pass

    refused: list[Callable[..., object]] = [within, lambda: None, Tuner.measure]
    for function in refused:
        with pytest.raises(ValueError, match="cannot import"):
            entry_point(function)


def test_functions_of_the_program_itself_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_point, "__module__", "__main__")
    with pytest.raises(ValueError, match="__main__"):
        entry_point(entry_point)


ARRAYS: dict[str, np.ndarray] = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.arange(12, dtype=np.int64).reshape(3, 4).T,
    "flags": np.array([True, False, True]),
    "number": np.array(2.5, np.float64),
    "nothing": np.empty((0, 4), np.float32),
}


def test_arrays_come_back_also_in_another_process(tmp_path: Path) -> None:
    stored = pickle.loads(pickle.dumps(StoredArrays.write(tmp_path / "arrays", ARRAYS)))
    assert list(stored) == list(ARRAYS)
    assert len(stored) == len(ARRAYS)
    for name, array in ARRAYS.items():
        assert stored[name].dtype == array.dtype
        np.testing.assert_array_equal(stored[name], array)


def test_arrays_are_mapped_aligned_and_read_only(tmp_path: Path) -> None:
    stored = StoredArrays.write(tmp_path / "arrays", ARRAYS)
    assert stored["turned"].ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        stored["matrix"][0, 0] = 1.0


def test_only_the_place_is_pickled(tmp_path: Path) -> None:
    stored = StoredArrays.write(tmp_path / "arrays", {"large": np.zeros(1 << 20)})
    assert len(pickle.dumps(stored)) < 1000


def test_a_transposed_array_is_stored_as_it_lies_in_memory(tmp_path: Path) -> None:
    matrix = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    stored = StoredArrays.write(tmp_path / "arrays", {"turned": matrix.transpose(2, 0, 1), "part": matrix[:, ::2]})
    assert (tmp_path / "arrays").read_bytes()[: matrix.nbytes] == matrix.tobytes()
    np.testing.assert_array_equal(stored["turned"], matrix.transpose(2, 0, 1))
    np.testing.assert_array_equal(stored["part"], matrix[:, ::2])


def test_types_that_numpy_lacks_come_back(tmp_path: Path) -> None:
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    found = StoredArrays.write(tmp_path / "arrays", {"array": array})["array"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_arrays_of_several_files_are_joined_and_renamed(tmp_path: Path) -> None:
    stored = StoredArrays.write(tmp_path / "arrays", ARRAYS)
    others = StoredArrays.write(tmp_path / "others", iter([("column", ARRAYS["turned"])]))
    joined = pickle.loads(
        pickle.dumps(stored.joined(others.renamed({"as is": ("column", False), "row": ("column", True)})))
    )
    assert list(joined) == [*ARRAYS, "as is", "row"]
    np.testing.assert_array_equal(joined["as is"], ARRAYS["turned"])
    np.testing.assert_array_equal(joined["row"], ARRAYS["turned"].T)
    assert joined == pickle.loads(pickle.dumps(joined))
    assert hash(joined) == hash(stored)
    assert joined != stored
