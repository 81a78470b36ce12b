"""Recurrent nodes: long sequences, LSTM by bytes, operands that do not fit; and running sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import attributes
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Value, model, node, relative_error, run, weights
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


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_an_excluded_element_is_not_subtracted_from_the_sum(reverse: int, axis: int, prepare_quickly: Prepare) -> None:
    values = np.array([[1e9, 1, 2], [3, np.inf, 4], [5, 6, 1e9]], np.float32)
    nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=reverse)]
    built = model(nodes, [("x", values.shape, FLOAT)], ["y"], {"axis": np.array(axis)}, opset=18)
    prepared = prepare_quickly(built).model
    (summed,) = [item for item in prepared.graph.node if item.op_type == "CumSum"]
    assert not attributes(summed).get("exclusive")
    assert summed.name
    np.testing.assert_array_equal(run(prepared, {"x": values})["y"], run(built, {"x": values})["y"])


def test_integers_are_subtracted(prepare_quickly: Prepare) -> None:
    nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=1)]
    built = model(nodes, [("x", (3,), INT64)], ["y"], {"axis": np.array(0)}, opset=18)
    built.graph.output[0].type.tensor_type.elem_type = INT64
    assert [item.op_type for item in prepare_quickly(built).model.graph.node] == ["CumSum"]


_QUANTISED_LSTM_STEPS, _INPUTS, _QUANTISED_LSTM_HIDDEN = 5, 6, 8
# An integer that a rounding difference of the state moves by one.
_ALLOWED = 2e-3
_ALL, _LAST = ("y", "y_h", "y_c"), ("", "y_h", "y_c")


def _quantised_lstm_model(
    kind: type,
    count: int,
    *,
    per_column: bool = False,
    batch: int = 1,
    outputs: Sequence[str] = _ALL,
    **attributes: Any,
) -> ModelProto:
    """A node that takes lengths of sequences if there are several."""
    random = np.random.default_rng(0)
    # Sums of two products stay within 16 bits, which some processors do not leave.
    least, most = (-64, 64) if kind is np.int8 else (0, 256)
    steps = (count, 4 * _QUANTISED_LSTM_HIDDEN) if per_column else (count,)
    constants: dict[str, Any] = {
        "w": random.integers(least, most, (count, _INPUTS, 4 * _QUANTISED_LSTM_HIDDEN)).astype(kind),
        "r": random.integers(least, most, (count, _QUANTISED_LSTM_HIDDEN, 4 * _QUANTISED_LSTM_HIDDEN)).astype(kind),
        "b": weights(count, 8 * _QUANTISED_LSTM_HIDDEN, scale=0.3),
        "p": weights(count, 3 * _QUANTISED_LSTM_HIDDEN, seed=1, scale=0.3),
        **{"ws": random.random(steps).astype(np.float32) * np.float32(0.01)},
        **{"rs": random.random(steps).astype(np.float32) * np.float32(0.01)},
        **{name: np.full(steps, 0 if kind is np.int8 else 128, kind) for name in ("wz", "rz")},
    }
    operands = ["x", "w", "r", "b", "lengths" if batch > 1 else "", "h", "c", "p", "ws", "wz", "rs", "rz"]
    one = attributes.pop("direction", "forward")
    lstm = node(
        "DynamicQuantizeLSTM",
        operands,
        list(outputs),
        domain=MS,
        hidden_size=_QUANTISED_LSTM_HIDDEN,
        direction="bidirectional" if count == 2 else one,
        **attributes,
    )
    inputs: list[Value] = [(name, (count, batch, _QUANTISED_LSTM_HIDDEN), FLOAT) for name in "hc"]
    inputs += [("lengths", (batch,), TensorProto.INT32)] if batch > 1 else []
    x = ("x", (_QUANTISED_LSTM_STEPS, batch, _INPUTS), FLOAT)
    return model([lstm], [x, *inputs], [name for name in outputs if name], constants)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("lengths", "outputs"),
    [
        *(([5, 5, 5], outputs) for outputs in (_ALL, _LAST)),
        *(([2, 5, 3], outputs) for outputs in (_ALL, _LAST)),
        *(([1, 4, 3], outputs) for outputs in (_ALL, _LAST)),
        # Without the first output, ONNX Runtime multiplies what it never wrote for a sequence of no step.
        ([0, 3, 2], _ALL),
    ],
)
def test_ranges_are_those_of_all_sequences_that_onnx_runtime_reads(
    direction: str, lengths: list[int], outputs: tuple[str, ...], prepare_quickly: Prepare
) -> None:
    """The first sequence, which is larger than others, ends first, and then does not widen the range of states."""
    count = 2 if direction == "bidirectional" else 1
    built = _quantised_lstm_model(np.int8, count, batch=3, outputs=outputs, direction=direction)
    x = weights(_QUANTISED_LSTM_STEPS, 3, _INPUTS) * np.asarray([3, 1, 0.3], np.float32)[None, :, None]
    feeds = sample_inputs(built, 3) | {"x": x, "lengths": np.asarray(lengths, np.int32)}
    expected = ReferenceModel(built.SerializeToString(), optimises=False)(feeds)
    found = run(prepare_quickly(built).model, feeds)
    for name, values in zip([each for each in outputs if each], expected, strict=True):
        np.testing.assert_allclose(found[name], values, atol=1e-5)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("attributes", [{}, {"direction": "reverse", "input_forget": 0, "clip": 1.5}])
def test_steps_are_those_of_onnx_runtime(
    kind: type, count: int, attributes: dict[str, Any], prepare_quickly: Prepare, *, per_column: bool
) -> None:
    built = _quantised_lstm_model(kind, count, per_column=per_column, **attributes)
    feeds = sample_inputs(built, 3)
    expected, computed = run(built, feeds), run(prepare_quickly(built).model, feeds)
    for name, values in expected.items():
        assert relative_error(computed[name], values) <= _ALLOWED


def test_matrices_that_are_inputs_are_refused(prepare_quickly: Prepare) -> None:
    built = _quantised_lstm_model(np.int8, 1)
    tensor = next(item for item in built.graph.initializer if item.name == "r")
    value = built.graph.input.add(name="r")
    value.type.tensor_type.elem_type = tensor.data_type
    for size in tensor.dims:
        value.type.tensor_type.shape.dim.add(dim_value=size)
    built.graph.initializer.remove(tensor)
    with pytest.raises(UnsupportedModelError, match="weights of bytes that are not constant; use the float model"):
        prepare_quickly(built)


_CHECK_OPERANDS_STEPS, _BATCH, _CHECK_OPERANDS_READ, _CHECK_OPERANDS_HIDDEN = 3, 2, 4, 5
_CHECK_OPERANDS_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _recurrent(operator: str, changed: dict[str, Any], **attributes: Any) -> ModelProto:
    rows = _CHECK_OPERANDS_GATES[operator] * _CHECK_OPERANDS_HIDDEN
    operands: dict[str, Any] = {
        "W": weights(1, rows, _CHECK_OPERANDS_READ),
        "R": weights(1, rows, _CHECK_OPERANDS_HIDDEN),
        "B": weights(1, 2 * rows),
    }
    operands |= changed
    order = ("W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    names = ["x", *(name if name in operands else "" for name in order)]
    given = {"hidden_size": _CHECK_OPERANDS_HIDDEN, **attributes}
    built = node(operator, names, ["y"], name="cell", **{key: each for key, each in given.items() if each is not None})
    return model([built], [("x", (_CHECK_OPERANDS_STEPS, _BATCH, _CHECK_OPERANDS_READ), FLOAT)], ["y"], operands)


@pytest.mark.parametrize("operator", _CHECK_OPERANDS_GATES)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("W", (1, 5, 4)), ("W", (1, 20, 3)), ("R", (1, 20, 4)), ("R", (1, 7, 5)), ("B", (1, 5)), ("W", (2, 20, 4))),
        *(("initial_h", (1, 3, 5)), ("sequence_lens", (3,))),
    ],
)
def test_operands_that_do_not_fit_are_refused_by_name(operator: str, name: str, shape: tuple[int, ...]) -> None:
    if operator == "RNN" and (name, shape) == ("W", (1, 5, 4)):
        shape = (1, 20, 4)
    values = np.full(shape, _CHECK_OPERANDS_STEPS, np.int32) if name == "sequence_lens" else weights(*shape)
    with pytest.raises(UnsupportedModelError) as refused:
        prepare(_recurrent(operator, {name: values}))
    said = str(refused.value)
    assert said.startswith(f"node 'cell' ({operator}) has {list(shape)} as the shape of its input '{name}', which ")


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"hidden_size": None}, "has None as its attribute 'hidden_size', which is a number"),
        ({"hidden_size": 6}, "has [1, 20, 4] as the shape of its input 'W', which its input of shape [3, 2, 4] and"),
        ({"direction": "up"}, "has 'up' as its attribute 'direction', which is forward, reverse or bidirectional"),
        ({"direction": "bidirectional"}, "make [2, 20, 4]"),
        ({"activations": ["Tanh"]}, "has 1 activations where it needs 3"),
    ],
)
def test_attributes_that_do_not_fit_are_refused_by_name(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"^node 'cell' \(LSTM\) .*{re.escape(reason)}"):
        prepare(_recurrent("LSTM", {}, **attributes))


def test_states_are_by_batch_where_the_batch_comes_first() -> None:
    built = _recurrent("GRU", {"initial_h": weights(_CHECK_OPERANDS_STEPS, 1, _CHECK_OPERANDS_HIDDEN)}, layout=1)
    assert prepare(built).model.graph.node
