"""Declared shapes that hold for one value of an input only are not believed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.decided_shapes import forget_decided
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_X: Value = ("x", (2, 3), FLOAT)
_IMAGE: Value = ("x", (1, 2, 4, 4), FLOAT)
_LARGE: Value = ("y", (1, 2, 8, 8), FLOAT)
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_ONE: Value = ("a", (1,), INT64)


def _case(operator: str, operands: str, read: Value, result: Value, *data: Value, **constants: object) -> ModelProto:
    """One node that reads a small input, with the declared shape of its result."""
    made = node(operator, operands.split(","), [result[0]])
    return model([made], [*(data or (_X,)), read], [result], constants, opset=18)


_DECIDED = {
    **{f"Reduce{kind}": _case(f"Reduce{kind}", "x,a", _ONE, ("y", (2, 1), FLOAT)) for kind in _REDUCTIONS},
    "Squeeze": _case("Squeeze", "x,a", _ONE, ("y", (2, 3), FLOAT), ("x", (2, 1, 3), FLOAT)),
    "Unsqueeze": _case("Unsqueeze", "x,a", _ONE, ("y", (1, 2, 3), FLOAT)),
    "Pad": _case("Pad", "x,a", ("a", (4,), INT64), ("y", (4, 5), FLOAT)),
    "Pad axes": _case("Pad", "x,p,,a", ("a", (2,), INT64), ("y", (2, 5), FLOAT), p=ints(0, 1, 0, 1)),
    "Slice axes": _case("Slice", "x,s,e,a", _ONE, ("y", (1, 3), FLOAT), s=ints(0), e=ints(1)),
    "Slice steps": _case("Slice", "x,s,e,t,a", _ONE, ("y", (1, 3), FLOAT), s=ints(0), e=ints(2), t=ints(0)),
    "Tile": _case("Tile", "x,a", ("a", (2,), INT64), ("y", (4, 6), FLOAT)),
    "Expand": _case("Expand", "x,a", ("a", (3,), INT64), ("y", (4, 2, 3), FLOAT)),
    "Reshape": _case("Reshape", "x,a", ("a", (2,), INT64), ("y", (3, 2), FLOAT)),
    "Resize sizes": _case("Resize", "x,,,a", ("a", (4,), INT64), _LARGE, _IMAGE),
    "Resize scales": _case("Resize", "x,,a", ("a", (4,), FLOAT), _LARGE, _IMAGE),
    "OneHot": _case(
        "OneHot", "i,a,v", ("a", (), INT64), ("y", (3, 4), FLOAT), ("i", (3,), INT64), v=np.array([0, 1], np.float32)
    ),
    "Split": _case("Split", "x,a", _ONE, ("y", (2, 3), FLOAT)),
    "CenterCropPad": _case("CenterCropPad", "x,a", ("a", (2,), INT64), ("y", (4, 4), FLOAT)),
    "HannWindow": _case("HannWindow", "a", ("a", (), INT64), ("y", (8,), FLOAT)),
    "Range": _case("Range", "s,a,d", ("a", (), INT64), ("y", (5,), INT64), s=0, d=1),
    "ConstantOfShape": _case("ConstantOfShape", "a", ("a", (2,), INT64), ("y", (2, 3), FLOAT)),
    "Col2Im": _case(
        "Col2Im", "x,a,b", ("a", (2,), INT64), ("y", (1, 1, 5, 5), FLOAT), ("x", (1, 5, 5), FLOAT), b=ints(1, 5)
    ),
}


@pytest.mark.parametrize("name", sorted(_DECIDED))
def test_the_node_is_refused_with_the_input_that_decides(name: str, prepare_quickly: Prepare) -> None:
    operator = name.partition(" ")[0]
    with pytest.raises(UnsupportedModelError, match=rf"node '{operator.lower()}' \({operator}\).*--bind (a=|to .*'a')"):
        prepare_quickly(_DECIDED[name])


def test_a_value_that_fits_the_declared_shape_compiles(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(_DECIDED["ReduceMean"], bindings={"a": (1,)})
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert run(prepared.model, feeds)["y"].tolist() == [[1], [4]]


def test_the_node_is_named_behind_others_and_for_computed_axes(prepare_quickly: Prepare) -> None:
    nodes = [
        node("Add", ["a", "one"], ["b"]),
        node("ReduceMax", ["x", "b"], ["m"]),
        node("Relu", ["m"], ["y"]),
    ]
    built = model(nodes, [_X, _ONE], [("y", (2, 1), FLOAT)], {"one": ints(1)}, opset=18)
    built.graph.value_info.append(helper.make_tensor_value_info("m", FLOAT, (2, 1)))
    with pytest.raises(UnsupportedModelError, match=r"node 'reducemax' \(ReduceMax\).*--bind a=0"):
        prepare_quickly(built)


def test_bodies_are_looked_into() -> None:
    bodies = [
        model([node(f"Reduce{kind}", ["x", "a"], [kind], keepdims=1)], [], [(kind, (2, 1), FLOAT)]).graph
        for kind in ("Sum", "Max")
    ]
    choice = node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    built = model([choice], [_X, _ONE, ("c", (), TensorProto.BOOL)], [("y", (2, 1), FLOAT)], opset=18)
    assert set(forget_decided(built)) == {"Sum", "Max", "y"}


def test_only_what_a_loop_collects_depends_on_the_number_of_its_steps() -> None:
    step = [node("Add", ["s", "s"], ["t"]), node("Identity", ["t"], ["u"]), node("Identity", ["c"], ["d"])]
    square = (2, 3)
    inputs: list[Value] = [("i", (), INT64), ("c", (), TensorProto.BOOL), ("s", square, FLOAT)]
    results: list[str | Value] = [("d", (), TensorProto.BOOL), ("t", square, FLOAT), ("u", square, FLOAT)]
    loop = node("Loop", ["n", "", "x"], ["z", "y"], body=model(step, inputs, results).graph)
    built = model([loop], [_X, ("n", (), INT64)], [("z", square, FLOAT), ("y", (3, *square), FLOAT)])
    assert forget_decided(built) == ("y",)


def test_a_length_behind_an_open_start_is_bounded(prepare_quickly: Prepare) -> None:
    built = _case("Slice", "x,a,e", _ONE, ("y", (1, 3), FLOAT), e=ints(2))
    prepared = prepare_quickly(built)
    assert prepared.outputs[0].shape == (2, 3)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "a": ints(1)}
    results = run(prepared.model, feeds)
    assert results["sartor.count:0:y"] == 1
    assert results["y"][0].tolist() == [3, 4, 5]


def _window(ends: list[NodeProto], opened: NodeProto, result: Value) -> ModelProto:
    inputs: list[Value] = [("x", (8, 3), FLOAT), _ONE]
    return model([*ends, opened], inputs, [result], {"n": ints(4), "nil": ints(0)}, opset=18)


_ALWAYS = {
    "window": _window(
        [node("Add", ["a", "n"], ["e"])], node("Slice", ["x", "a", "e", "nil"], ["y"]), ("y", (4, 3), FLOAT)
    ),
    "shifted": _window(
        [node("Sub", ["n", "a"], ["e"]), node("Concat", ["a", "nil", "e", "nil"], ["p"], axis=0)],
        node("Pad", ["x", "p"], ["y"]),
        ("y", (12, 3), FLOAT),
    ),
    "running": _window([], node("CumSum", ["x", "a"], ["y"]), ("y", (8, 3), FLOAT)),
    "of a shape": _window(
        [node("Shape", ["a"], ["p"]), node("Concat", ["p", "p"], ["r"], axis=0)],
        node("Tile", ["x", "r"], ["y"]),
        ("y", (8, 3), FLOAT),
    ),
}


@pytest.mark.parametrize("name", sorted(_ALWAYS))
def test_a_shape_that_all_values_give_is_believed(name: str) -> None:
    built = _ALWAYS[name]
    before = built.SerializeToString()
    assert forget_decided(built) == ()
    assert built.SerializeToString() == before


def test_operands_that_decide_no_shape_are_named_too(prepare_quickly: Prepare) -> None:
    built = _case("DFT", "x,,a", ("a", (), INT64), ("y", (2, 4, 2), FLOAT), ("x", (2, 4, 1), FLOAT))
    built.opset_import[0].version = 20
    advice = re.escape("; that depends on the values of input 'a': fix them with --bind a=1, or with other values")
    with pytest.raises(UnsupportedModelError, match=rf"node 'dft' \(DFT\).*{advice}$"):
        prepare_quickly(built)


def test_advised_values_end_a_training(prepare_quickly: Prepare) -> None:
    built = _case("Dropout", "x,r,a", ("a", (), TensorProto.BOOL), ("y", (2, 3), FLOAT), r=np.float32(0.5))
    with pytest.raises(UnsupportedModelError, match=r"node 'dropout' .* input 'a': fix them with --bind a=false"):
        prepare_quickly(built)
    assert prepare_quickly(built, bindings={"a": (False,)}).outputs[0].shape == (2, 3)


def test_a_grid_of_an_open_size_is_refused_by_node(prepare_quickly: Prepare) -> None:
    built = _case("AffineGrid", "t,a", ("a", (4,), INT64), ("y", (1, 4, 4, 2), FLOAT), ("t", (1, 2, 3), FLOAT))
    built.opset_import[0].version = 20
    with pytest.raises(UnsupportedModelError, match=r"node 'affinegrid' \(AffineGrid\) computes its size.*--bind a="):
        prepare_quickly(built)


def test_a_backward_slice_along_an_axis_that_is_an_input_is_refused_by_node(prepare_quickly: Prepare) -> None:
    shape = (4, 4)
    constants = {"s": ints(-1), "e": ints(np.iinfo(np.int64).min), "t": ints(-1)}
    built = _case("Slice", "x,s,e,a,t", _ONE, ("y", shape, FLOAT), ("x", shape, FLOAT), **constants)
    with pytest.raises(UnsupportedModelError, match=r"node 'slice' \(Slice\).*--bind a=0"):
        prepare_quickly(built)
