"""Files that ONNX Runtime's optimiser and quantisers wrote compile, and compute what the reference computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sartor.backend
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.drawn_weights import with_drawn_weights

_FILES = sorted((Path(__file__).parents[2] / "onnx_runtime_files").glob("*.onnx"))
# Relative to the largest value of an output.
_FLOAT, _HALF = 2e-6, 4e-3
# One step of 255, by which values next to a tie may differ.
_STEP = 1 / 100


def _allowed(name: str) -> float:
    if name.startswith(("dynamic_", "static_")):
        return _STEP
    return _HALF if name.endswith("f16") else _FLOAT


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_compiles_and_is_right(path: Path) -> None:
    model = with_drawn_weights(path)
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
