"""Long sequences: which IREE's loop may compute, as it takes no notice of what a cell has beside its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.conftest import Prepare

_STEPS, _HIDDEN, _READ = 300, 5, 3
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_OTHERS = {"RNN": ["Relu"], "GRU": ["Relu", "Sigmoid"], "LSTM": ["Relu", "Softsign", "Sigmoid"]}


def _model(op_type: str, steps: int = _STEPS, lengths: list[int] | None = None, **options: Any) -> ModelProto:
    """One cell over two sequences whose weights are inputs, so that no kernel computes it."""
    rows, directions = _GATES[op_type] * _HIDDEN, 2 if options.get("direction") == "bidirectional" else 1
    shapes = {"x": [steps, 2, _READ], "w": [directions, rows, _READ], "r": [directions, rows, _HIDDEN]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    shapes_out = {"y": [steps, directions, 2, _HIDDEN], "last": [directions, 2, _HIDDEN]}
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes_out.items()]
    constants = [] if lengths is None else [numpy_helper.from_array(np.array(lengths, np.int32), "lengths")]
    names = [*shapes, "", "lengths"] if constants else [*shapes]
    node = helper.make_node(op_type, names, [*shapes_out], name="cell", hidden_size=_HIDDEN, **options)
    graph = helper.make_graph([node], "graph", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("op_type", _GATES)
def test_a_plain_cell_is_left_to_iree(op_type: str, prepare_quickly: Prepare) -> None:
    for lengths in (None, [_STEPS, _STEPS]):
        prepared = prepare_quickly(_model(op_type, lengths=lengths))
        assert op_type in [node.op_type for node in prepared.model.graph.node]


@pytest.mark.parametrize("op_type", _GATES)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clip": 0.2}, "clip"),
        ({"lengths": [_STEPS, 17]}, "sequence_lens"),
        ({"activations": None}, "activation"),
        ({"direction": "reverse"}, "direction"),
    ],
)
def test_a_cell_with_extras_is_refused(
    op_type: str, options: dict[str, Any], said: str, prepare_quickly: Prepare
) -> None:
    if "activations" in options:
        options = {"activations": _OTHERS[op_type]}
    with pytest.raises(UnsupportedModelError, match=rf"node 'cell' \({op_type}\) runs over 300 steps; with .*{said}"):
        prepare_quickly(_model(op_type, **options))
    prepared = prepare_quickly(
        _model(op_type, 4, **{**options, **({"lengths": [4, 4]} if "lengths" in options else {})})
    )
    assert op_type not in [node.op_type for node in prepared.model.graph.node], "a short sequence is unrolled"


def test_a_cell_of_no_steps_is_refused(prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match="runs over no steps; bind a longer sequence"):
        prepare_quickly(_model("GRU", 0), {"x": (0, 2, _READ)})


@pytest.mark.parametrize("position", range(3))
def test_an_activation_that_is_not_known_is_named(position: int, prepare_quickly: Prepare) -> None:
    activations = ["Sigmoid", "Tanh", "Tanh"]
    activations[position] = "Elu"
    with pytest.raises(
        UnsupportedModelError, match=r"node 'cell' \(LSTM\) has the activation 'Elu'; HardSigmoid, Relu, Sig"
    ):
        prepare_quickly(_model("LSTM", 4, activations=activations))
