"""Sequences and optionals become tensors, and constants of bodies those of the main graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.frontend.onnx_import import import_model
from sartor.onnx_model.graphs.walk import graphs
from sartor.onnx_model.preparing.prepare import resolve_interface
from sartor.onnx_model.rewrites.control_flow.lift_initializers import lift_initializers
from sartor.onnx_model.rewrites.control_flow.tensor_interface import (
    PackedOutput,
    has_tensors_only,
    tensor_inputs,
    tensor_outputs,
)
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.rate_models import RATE, rate_model


@pytest.mark.parametrize("split", [None, np.int64(2)])
def test_a_dimension_without_elements_has_no_parts(split: np.int64 | None, prepare_quickly: Prepare) -> None:
    given = {} if split is None else {"split": split}
    nodes = [
        node("SplitToSequence", ["x", *given], ["parts"], axis=0),
        node("SequenceLength", ["parts"], ["count"]),
        node("SequenceInsert", ["parts", "w"], ["one"]),
        node("ConcatFromSequence", ["one"], ["y"], axis=0),
    ]
    built = model(nodes, [("x", (0, 4), FLOAT), ("w", (2, 4), FLOAT)], [("count", (), INT64), "y"], given)
    prepared = prepare_quickly(built, {"x": (0, 4)}).model
    feeds = {"x": weights(0, 4), "w": weights(2, 4)}
    right = run(built, feeds)
    assert right["count"] == 0
    taken = {each.name: feeds[each.name] for each in prepared.graph.input}
    for name, found in run(prepared, taken).items():
        np.testing.assert_array_equal(found, right[name])


_FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
_SEQUENCE = helper.make_sequence_type_proto(_FLOATS)
_X, _Z = np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)


def _model(operator: str, inputs: dict[str, Any], output: Any, **attributes: Any) -> ModelProto:
    values = [helper.make_value_info(name, kind) for name, kind in inputs.items()]
    node = helper.make_node(operator, list(inputs), ["y"], name="node", **attributes)
    graph = helper.make_graph([node], "graph", values, [helper.make_value_info("y", output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _names(values: Any) -> list[str]:
    return [value.name for value in values]


def test_a_sequence_becomes_one_tensor_for_each_element() -> None:
    model = _model("SequenceInsert", {"s": _SEQUENCE, "x": _FLOATS}, _SEQUENCE)
    assert not has_tensors_only(model)
    feeds = tensor_inputs(model, {"s": [_X, _Z], "x": _Z})
    assert _names(model.graph.input) == list(feeds) == ["s/0", "s/1", "x"]
    (packed,) = resolve_interface(model, {"x": (1, 3)})
    assert has_tensors_only(model)
    assert _names(model.graph.output) == ["y/0", "y/1", "y/2"]
    assert {node.op_type for node in model.graph.node} == {"Identity"}
    assert [list(node.input) for node in model.graph.node] == [["s/0"], ["s/1"], ["x"]]
    found = packed.packed({"y/0": _X, "y/1": _Z, "y/2": _Z})
    assert isinstance(found, list)
    assert [each.shape for each in found] == [(2, 3), (1, 3), (1, 3)]


def test_an_empty_sequence_has_the_declared_element_type() -> None:
    integers = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.INT64, None))
    model = _model("SequenceLength", {"s": integers}, helper.make_tensor_type_proto(TensorProto.INT64, []))
    assert tensor_inputs(model, {"s": []}) == {}
    assert helper.get_node_attr_value(model.graph.node[0], "dtype") == TensorProto.INT64
    assert resolve_interface(model, {}) == (PackedOutput(("y",)),)


@pytest.mark.parametrize(
    ("given", "names", "is_list"), [(None, (), False), ([_X, _Z], ("y/0", "y/1"), True), ([], (), True)]
)
def test_an_optional_has_its_content_or_none(given: Any, names: tuple[str, ...], is_list: bool) -> None:
    optional = helper.make_optional_type_proto(_SEQUENCE)
    model = _model("Identity", {"o": optional}, optional)
    tensor_inputs(model, {"o": given})
    assert resolve_interface(model, {}) == (PackedOutput(names, is_list),)
    assert PackedOutput(()).packed({}) is None


def test_an_optional_tensor_is_an_output() -> None:
    optional = helper.make_optional_type_proto(_FLOATS)
    model = _model("Identity", {"o": optional}, optional)
    assert list(tensor_inputs(model, {"o": _X})) == ["o/content"]
    assert resolve_interface(model, {}) == (PackedOutput(("y/0",)),)


def test_a_value_of_another_kind_is_refused() -> None:
    model = _model("SequenceInsert", {"s": _SEQUENCE, "x": _FLOATS}, _SEQUENCE)
    with pytest.raises(UsageError, match="'s' is a sequence, so a list"):
        tensor_inputs(model, {"s": _X, "x": _X})
    with pytest.raises(UsageError, match="'x' is a tensor"):
        tensor_inputs(model, {"s": [_X], "x": [_X]})
    with pytest.raises(UsageError, match="'s/1' is a tensor"):
        tensor_inputs(model, {"s": [_X, None], "x": _X})


def test_elements_that_data_determine_are_refused() -> None:
    sizes = helper.make_tensor_type_proto(TensorProto.INT64, [2])
    model = _model("SplitToSequence", {"x": _FLOATS, "sizes": sizes}, _SEQUENCE)
    with pytest.raises(UnsupportedModelError, match="output 'y' is a sequence or optional whose elements are known"):
        tensor_outputs(model)


def test_a_position_outside_the_sequence_is_refused() -> None:
    model = _model("SequenceAt", {"s": _SEQUENCE, "at": helper.make_tensor_type_proto(TensorProto.INT64, [])}, _FLOATS)
    model.graph.initializer.append(helper.make_tensor("at", TensorProto.INT64, [], [2]))
    tensor_inputs(model, {"s": [_X, _Z]})
    with pytest.raises(UnsupportedModelError, match=r"node 'node' \(SequenceAt\) is malformed"):
        resolve_interface(model, {})


@pytest.fixture
def chooser() -> ModelProto:
    """A model that selects its branch by an input; both branches have weights of their own."""
    return rate_model((2, 3))


def test_no_body_keeps_constants(chooser: ModelProto) -> None:
    branch = chooser.graph.node[1].attribute[0].g
    shape = numpy_helper.to_array(branch.initializer[0])
    assert lift_initializers(chooser) == ("shape", "weight", "shape", "weight")
    assert not any(graph.initializer for graph in graphs(chooser) if graph != chooser.graph)
    lifted = {tensor.name: numpy_helper.to_array(tensor) for tensor in chooser.graph.initializer}
    np.testing.assert_array_equal(lifted["choice/shape"], shape)


def test_a_branch_that_returns_a_constant_still_does(chooser: ModelProto) -> None:
    for attribute in chooser.graph.node[1].attribute:
        del attribute.g.node[:]
        attribute.g.output[0].name = "weight"
    feeds = {"x": np.zeros((1, 8), np.float32), "sr": np.array(RATE)}
    (right,) = run(chooser, feeds).values()
    lift_initializers(chooser)
    np.testing.assert_array_equal(run(chooser, feeds)["y"], right)


@pytest.mark.parametrize("rate", [RATE, 8000])
def test_it_computes_the_same(chooser: ModelProto, prepare_quickly: Prepare, rate: int) -> None:
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8), "sr": np.array(rate)}
    prepared = prepare_quickly(chooser).model
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(chooser, feeds)["y"])


def test_bodies_find_constants_of_the_main_graph(chooser: ModelProto, prepare_quickly: Prepare) -> None:
    for attribute in chooser.graph.node[1].attribute:
        attribute.g.node.append(node("Add", ["product", "shift"], ["shifted"], name=f"shift{attribute.name}"))
        attribute.g.output[0].name = "shifted"
    chooser.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "shift"))
    imported = import_model(prepare_quickly(chooser).model)
    assert sum(array.shape == (2, 3) for array in imported.weights.values()) == 1
