"""Binding of free dimensions: what fits becomes static everywhere, what does not is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import static_shape
from sartor.onnx_model.graphs.prepared import PreparedModel, TensorInfo
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node
from tests.plugin.onnx_model.conftest import Prepare


def _dynamic() -> ModelProto:
    """Two inputs that share the symbol ``n``; the reshape target is computed from a shape."""
    return model(
        [
            node("Add", ["a", "b"], ["s"]),
            node("Shape", ["s"], ["d"]),
            node("Gather", ["d", "first"], ["n"]),
            node("Concat", ["n", "rest"], ["t"], axis=0),
            node("Reshape", ["s", "t"], ["y"]),
        ],
        [("a", ("n", 4, "m"), FLOAT), ("b", ("n", 1, 1), FLOAT)],
        ["y"],
        {"first": [0], "rest": [-1]},
    )


def _bind(built: ModelProto, **shapes: tuple[int, ...]) -> PreparedModel:
    return prepare(built, shapes)


def test_binding_reaches_every_value(prepare_quickly: Prepare) -> None:
    prepared = _bind(_dynamic(), a=(3, 4, 5))
    assert [item.op_type for item in prepared.model.graph.node] == ["Add", "Reshape"]
    assert prepared.inputs[1] == TensorInfo("b", (3, 1, 1), prepared.inputs[1].dtype)
    assert prepared.outputs[0].shape == (3, 20)
    values = prepared.model.graph.value_info
    assert values
    assert all(static_shape(value.type) for value in values)


def test_the_model_itself_is_not_changed(prepare_quickly: Prepare) -> None:
    built = _dynamic()
    before = built.SerializeToString()
    _bind(built, a=(3, 4, 5))
    assert built.SerializeToString() == before


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"c": (1,)}, r"names the input 'c', which the model does not have; its inputs are 'a', 'b'"),
        ({"a": (3, 4)}, r"--shape a=3,4 has 2 dimensions, but the input has 3: n,4,m"),
        ({"a": (3, 5, 5)}, r"binds dimension 1 of 'a' to 5, but the model fixes it to 4"),
        ({"a": (3, 4, 5), "b": (2, 1, 1)}, r"binds 'n' to 3 in 'a' and to 2 in 'b'"),
        ({"b": (3, 1, 1)}, r"dimension 2 \('m'\) of input 'a' is not fixed; bind it with --shape a=3,4,128"),
        ({}, r"dimension 0 \('n'\) of input 'a' is not fixed; bind it with --shape a=1,4,128"),
        ({"a": (-1, 4, 5)}, r"--shape a=-1,4,5 has a dimension that is not between 0 and"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(_dynamic(), shapes)


def test_a_size_of_zero_must_be_asked_for() -> None:
    built = model([node("ReduceSum", ["x", "axis"], ["y"])], [("x", [0, 4], FLOAT)], ["y"], {"axis": np.array([0])})
    with pytest.raises(
        UsageError,
        match=r"dimension 0 of input 'x' has the size 0; .* --shape x=1,4, or with other sizes, with 0 there",
    ):
        prepare(built)
    assert _bind(built, x=(0, 4)).inputs[0].shape == (0, 4)
    assert _bind(built, x=(3, 4)).inputs[0].shape == (3, 4)


def test_unknown_rank_is_bound_too(prepare_quickly: Prepare) -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (1,), FLOAT)], ["y"])
    built.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match=r"declares no shape; bind it with --shape x=1,3,224,224"):
        prepare(built)
    assert _bind(built, x=(2, 3)).outputs[0].shape == (2, 3)


def test_zero_and_negative_dimensions_count_as_free(prepare_quickly: Prepare) -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (-1, 0, 7), FLOAT)], ["y"])
    with pytest.raises(UsageError, match=r"--shape x=1,128,7"):
        prepare(built)
    assert _bind(built, x=(2, 3, 7)).outputs[0].shape == (2, 3, 7)


def test_shape_that_depends_on_data(prepare_quickly: Prepare) -> None:
    nodes = [node("Range", ["zero", "end", "one"], ["y"])]
    constants = {"zero": np.array(0), "one": np.array(1)}
    built = model(nodes, [("end", (), INT64)], [("y", None, INT64)], constants)
    with pytest.raises(UnsupportedModelError, match=r"'y', computed by .*, depends on the data"):
        prepare(built)


def test_input_that_is_no_tensor(prepare_quickly: Prepare) -> None:
    built = model([node("SequenceAt", ["x", "i"], ["y"])], [], ["y"], {"i": 0})
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    built.graph.input.append(helper.make_value_info("x", kind))
    with pytest.raises(UnsupportedModelError, match="input 'x' is not a tensor"):
        prepare(built)


def test_contradicting_shapes(prepare_quickly: Prepare) -> None:
    built = model([node("MatMul", ["a", "b"], ["y"])], [("a", (2, 3), FLOAT), ("b", (4, 5), FLOAT)], ["y"])
    with pytest.raises(UnsupportedModelError, match="contradict"):
        prepare(built)


def test_a_shape_that_an_input_decides_is_refused_by_node(prepare_quickly: Prepare) -> None:
    built = model([node("BlackmanWindow", ["n"], ["y"])], [("n", (), INT64)], ["y"])
    with pytest.raises(UnsupportedModelError, match=r"'y', computed by node '\w+' \(BlackmanWindow\),.*--bind n="):
        prepare_quickly(built)


@pytest.mark.parametrize(("declared", "shapes"), [(None, {"x": (2, 3)}), (("n", 3), {"x": (2, 3)}), ((2, 3), {})])
def test_an_input_that_is_an_output_has_its_shape_there(
    declared: tuple[int | str, ...] | None, shapes: dict[str, tuple[int, ...]], prepare_quickly: Prepare
) -> None:
    built = model([node("Relu", ["a"], ["y"])], [("a", (2,), FLOAT), ("x", declared, FLOAT)], ["y", "x"])
    assert [(output.name, output.shape) for output in _bind(built, **shapes).outputs] == [("y", (2,)), ("x", (2, 3))]
