"""Files that other libraries' exporters and optimisers wrote compute what ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import sartor.backend
from sartor.onnx_model.graphs.graph import Array
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.drawn_weights import with_drawn_weights

_FOLDER = Path(__file__).parents[2] / "library_files"
_FILES = sorted(_FOLDER.glob("*.onnx"))
# Sizes of the dimensions that the libraries leave open.
_TOKENS, _PAST = 3, 4
_SIZES = {
    # A prompt after others is of one call in ONNX Runtime.
    "batch_size": 1,
    **dict.fromkeys(("batch", "B"), 2),
    **dict.fromkeys(("sequence_length", "decoder_sequence_length"), _TOKENS),
    **dict.fromkeys(("past_sequence_length", "past_decoder_sequence_length"), _PAST),
    **dict.fromkeys(("total_sequence_length", "past_sequence_length + sequence_length"), _PAST + _TOKENS),
    "encoder_sequence_length": 5,
    "kv_cache_dim": 16,
}
# What callers of a file fix.
_BOUND: Mapping[str, Mapping[str, Array]] = {
    "optimum_t5_decoder_model_merged": {"use_cache_branch": np.array([True])},
}


def _sized(path: Path) -> ModelProto:
    """The model of a file, all of whose inputs have sizes."""
    model = with_drawn_weights(path)
    for value in model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_value = _SIZES[dimension.dim_param]
    return model


def _feeds(model: ModelProto, path: Path) -> dict[str, Array]:
    return {**sample_inputs(model, 1), **_BOUND.get(path.stem, {})}


def _check(results: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, right in expected.items():
        assert results[name].dtype == right.dtype
        assert results[name].shape == right.shape
        largest = float(np.abs(right).max(initial=0))
        assert largest > 0 or not right.size
        np.testing.assert_allclose(results[name], right, rtol=0, atol=2e-6 * largest)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_is_prepared_right(path: Path, prepare_quickly: Prepare) -> None:
    model, bound = _sized(path), _BOUND.get(path.stem, {})
    feeds = _feeds(model, path)
    prepared = prepare_quickly(model, bindings=bound).model
    _check(run(prepared, {name: each for name, each in feeds.items() if name not in bound}), run(model, feeds))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_compiles_and_is_right(path: Path) -> None:
    model = _sized(path)
    feeds = _feeds(model, path)
    names = [value.name for value in model.graph.output]
    _check(dict(zip(names, sartor.backend.run_model(model, list(feeds.values())), strict=True)), run(model, feeds))


def test_the_files_are_there() -> None:
    assert len(_FILES) == 19
