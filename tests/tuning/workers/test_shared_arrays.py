"""Arrays that are shared by a file."""

from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.tuning.workers.shared_arrays import StoredArrays

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
