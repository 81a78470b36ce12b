"""Packed weights in a file: the same arrays of any type and order, in memory that nobody allocates."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.linking.weights import parameters
from sartor.codegen.linking.weights.mapped_arrays import mapped_arrays
from sartor.codegen.linking.weights.parameters import Parameters

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "turned": np.arange(15, dtype=np.float32).reshape(3, 5).T,
    "none": np.zeros((3, 0), np.float16),
    "scalar": np.array(7, np.int64),
    "truth": np.array([True, False, True]),
    "half": np.arange(9).astype(ml_dtypes.bfloat16),
}


def test_arrays_are_mapped(tmp_path: Path) -> None:
    found = mapped_arrays(tmp_path / "file", ARRAYS.items())
    assert not list(tmp_path.iterdir())
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert not found[name].flags.writeable
        assert not found[name].flags.owndata


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    def until_full() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield "turned", ARRAYS["turned"]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        mapped_arrays(tmp_path / "file", until_full())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_shared", [False, True])
def test_many_weights_are_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    monkeypatch.setattr(parameters, "_MANY_BYTES", 70)
    kept = Parameters(is_shared=is_shared)
    for name in ("turned", "half", "turned"):
        kept.add(TensorType.of(ARRAYS[name].shape, ARRAYS[name].dtype), partial(ARRAYS.__getitem__, name))
    arrays = kept.arrays(tmp_path / "file")
    assert len(arrays) == (2 if is_shared else 3)
    np.testing.assert_array_equal(arrays["p0"], ARRAYS["turned"])
    np.testing.assert_array_equal(arrays["p1"], ARRAYS["half"])
    assert not arrays["p0"].flags.writeable
    assert kept.arrays()["p0"].flags.writeable
