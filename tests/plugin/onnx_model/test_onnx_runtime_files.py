"""Files that ONNX Runtime's optimiser and quantisers wrote compile, and compute what the reference computes."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

import sartor.backend
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel

_FILES = sorted((Path(__file__).parents[2] / "onnx_runtime_files").glob("*.onnx"))
# Relative to the largest value of an output.
_FLOAT, _HALF = 2e-6, 4e-3
# One step of 255, by which values next to a tie may differ.
_STEP = 1 / 100


def _drawn(path: Path) -> ModelProto:
    """The model of a file with weights drawn for the tensors that have none."""
    model = onnx.load_model(path)
    for tensor in model.graph.initializer:
        kind, count = helper.tensor_dtype_to_np_dtype(tensor.data_type), math.prod(tensor.dims)
        if tensor.raw_data or tensor.float_data or tensor.int32_data or tensor.int64_data or not count:
            continue
        values: np.ndarray[Any, Any]
        random = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            values = random.integers(limits.min, limits.max + 1, list(tensor.dims))
        else:
            values = random.standard_normal(list(tensor.dims)) / math.sqrt(tensor.dims[0])
        tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), tensor.name))
    return model


def _allowed(name: str) -> float:
    if name.startswith(("dynamic_", "static_")):
        return _STEP
    return _HALF if name.endswith("f16") else _FLOAT


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_compiles_and_is_right(path: Path) -> None:
    model = _drawn(path)
    feeds = sample_inputs(model, 3)
    expected = ReferenceModel(model.SerializeToString())(feeds)
    results = sartor.backend.run_model(model, list(feeds.values()))
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        wide = wanted.astype(np.float64)
        assert np.abs(wide).max() > 0
        assert np.abs(result - wide).max() <= _allowed(path.stem) * np.abs(wide).max()


def test_the_files_are_there() -> None:
    assert len(_FILES) == 37
