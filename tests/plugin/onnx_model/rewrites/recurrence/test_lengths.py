"""Recurrent nodes over sequences whose lengths are an input of the model, or constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from tests.plugin.onnx_model.builders import FLOAT, Array, Value, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_STEPS, _BATCH, _READ, _HIDDEN = 7, 3, 5, 6
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_LENGTHS = ([7, 7, 7], [0, 3, 7], [1, 2, 6], [0, 0, 0])


def _model(operator: str, direction: str, lengths: Array | None = None, **options: Any) -> ModelProto:
    """One node with initial states; the lengths are the input ``l`` unless they are given."""
    gates, directions = _GATES[operator], 2 if direction == "bidirectional" else 1
    constants = {
        "w": weights(directions, gates * _HIDDEN, _READ),
        "r": weights(directions, gates * _HIDDEN, _HIDDEN, seed=1),
        "b": weights(directions, 2 * gates * _HIDDEN, seed=2),
        "h0": weights(directions, _BATCH, _HIDDEN, seed=3),
    }
    read, outputs = ["x", "w", "r", "b", "l", "h0"], ["y", "h"]
    inputs: list[Value] = [("x", (_STEPS, _BATCH, _READ), FLOAT)]
    if operator == "LSTM":
        constants["c0"] = weights(directions, _BATCH, _HIDDEN, seed=4)
        read, outputs = [*read, "c0"], [*outputs, "c"]
    if lengths is None:
        inputs.append(("l", (_BATCH,), TensorProto.INT32))
    else:
        constants["l"] = lengths
    cell = node(operator, read, outputs, hidden_size=_HIDDEN, direction=direction, **options)
    return model([cell], inputs, outputs, constants)


def _check(original: ModelProto, prepared: ModelProto, lengths: list[int]) -> None:
    feeds: dict[str, Array] = {"x": weights(_STEPS, _BATCH, _READ, seed=5)}
    if len(original.graph.input) > 1:
        feeds["l"] = np.array(lengths, np.int32)
    expected, actual = run(original, feeds), run(prepared, feeds)
    for name, values in expected.items():
        assert np.abs(actual[name] - values).max() < 1e-5, (name, lengths)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", _GATES)
def test_lengths_of_a_call_end_each_sequence(operator: str, direction: str, prepare_quickly: Prepare) -> None:
    original = _model(operator, direction)
    prepared = prepare_quickly(original).model
    # The loop over all steps stays one node a direction, which kernels compute.
    kept = [item for item in prepared.graph.node if item.op_type == operator]
    assert len(kept) == (2 if direction == "bidirectional" else 1)
    for lengths in _LENGTHS:
        _check(original, prepared, lengths)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", _GATES)
def test_cells_that_are_unrolled_keep_their_state_behind_an_end(
    operator: str, direction: str, prepare_quickly: Prepare
) -> None:
    original = _model(operator, direction, clip=0.5)
    prepared = prepare_quickly(original).model
    assert operator not in [item.op_type for item in prepared.graph.node]
    for lengths in _LENGTHS:
        _check(original, prepared, lengths)


@pytest.mark.parametrize("operator", _GATES)
def test_constant_lengths_are_taken(operator: str, prepare_quickly: Prepare) -> None:
    original = _model(operator, "bidirectional", ints(4, 7, 1).astype(np.int32))
    _check(original, prepare_quickly(original).model, [])


def test_large_sums_of_gates_leave_a_memory_alone(prepare_quickly: Prepare) -> None:
    """The gates that keep a memory behind the end are open or shut whatever the step's own sums are."""
    original = _model("LSTM", "forward")
    prepared = prepare_quickly(original).model
    feeds = {"x": 50 * weights(_STEPS, _BATCH, _READ, seed=6), "l": np.array([2, 5, 7], np.int32)}
    expected, actual = run(original, feeds)["c"], run(prepared, feeds)["c"]
    assert np.abs(actual - expected).max() < 1e-5


def test_what_pads_a_sequence_is_not_read(prepare_quickly: Prepare) -> None:
    original = _model("LSTM", "forward")
    prepared = prepare_quickly(original).model
    x = weights(_STEPS, _BATCH, _READ, seed=6)
    x[2:, 0], x[5:, 1] = np.nan, 1e30
    feeds = {"x": x, "l": np.array([2, 5, 7], np.int32)}
    expected, actual = run(original, feeds), run(prepared, feeds)
    for name, values in expected.items():
        assert np.abs(actual[name] - values).max() < 1e-5, name
