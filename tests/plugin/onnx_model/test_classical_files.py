"""Files that converters of classical models wrote compute what ONNX Runtime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import sartor.backend
from sartor.onnx_model.reading.load import load_model
from tests.plugin.onnx_model.builders import Array, run
from tests.plugin.onnx_model.conftest import Prepare

_FILES = sorted((Path(__file__).parents[2] / "classical_files").glob("*.onnx"))
_ROWS = 20
# Logarithms of the sizes that features have: lengths of leaves and petals, and very different ones.
_SIZES = {4: (-1.0, 0.9), 30: (-2.5, 3.0)}


def _feeds(model: onnx.ModelProto) -> dict[str, Array]:
    (given,) = model.graph.input
    features = given.type.tensor_type.shape.dim[1].dim_value
    rows = 10 ** np.random.default_rng(0).uniform(*_SIZES[features], (_ROWS, features))
    return {given.name: rows.astype(np.float32)}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_is_prepared_right(path: Path, prepare_quickly: Prepare) -> None:
    model = onnx.load_model(path)
    feeds = _feeds(model)
    prepared = prepare_quickly(load_model(path), {name: array.shape for name, array in feeds.items()}).model
    expected, actual = run(model, feeds), run(prepared, feeds)
    assert {node.domain for node in prepared.graph.node} == {""}
    labels, scores = expected.values()
    assert len(np.unique(labels)) > 1
    assert np.ptp(scores) > 0
    for name, wanted in expected.items():
        np.testing.assert_allclose(actual[name], wanted, rtol=1e-5, atol=1e-6)


def test_a_file_compiles_and_is_right() -> None:
    model = onnx.load_model(next(path for path in _FILES if path.stem == "lightgbm_binary"))
    feeds = _feeds(model)
    results = sartor.backend.run_model(model, list(feeds.values()))
    for result, wanted in zip(results, run(model, feeds).values(), strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_the_files_are_there() -> None:
    assert len(_FILES) == 5
