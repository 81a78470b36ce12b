"""Slices of dimensions of negative size: ONNX's own inference ends the process, so that no test would be left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, defs, helper, parser

from sartor.errors import SartorError
from sartor.onnx_model.graphs.guarded_slices import inferred_types
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.negative_sizes import COMBINED, MEASURED, PASSED, SIZED, SUBTRACTED
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, ints, model, node, weights
from tests.plugin.onnx_model.conftest import Prepare

_IMAGE: list[Value] = [("x", (1, 3, 4, 3), FLOAT)]
_BOUNDS = {"first": ints(0), "end": ints(1), "axis": ints(3)}
_FILTER = {"w": weights(4, 3, 5, 5)}
_CASES: dict[str, tuple[list[NodeProto], list[Value], dict[str, Any]]] = {
    "convolution": ([node("Conv", ["x", "w"], ["c"])], _IMAGE, _FILTER),
    "pooling": ([node("MaxPool", ["x"], ["c"], kernel_shape=[5, 5])], _IMAGE, {}),
    "transposed": (
        [node("ConvTranspose", ["x", "w"], ["c"], pads=[9] * 4)],
        [("x", (1, 4, 3, 3), FLOAT)],
        {"w": weights(4, 3, 5, 5)},
    ),
    "cut_pads": ([node("Pad", ["x", "p"], ["c"])], _IMAGE, {"p": ints(0, 0, 0, -2, 0, 0, 0, -2)}),
    "expansion": ([node("Expand", ["x", "p"], ["c"])], [("x", (1, 1, 1, 1), FLOAT)], {"p": ints(1, 1, 1, -3)}),
    "parts": ([node("Split", ["x", "p"], ["d", "c"], axis=3)], _IMAGE, {"p": ints(5, -2)}),
    "largest": ([node("TopK", ["x", "p"], ["c", "i"])], _IMAGE, {"p": ints(-2)}),
    "cropped": ([node("CenterCropPad", ["x", "p"], ["c"], axes=[3])], _IMAGE, {"p": ints(-2)}),
    "sampled": ([node("AffineGrid", ["x", "p"], ["c"])], [("x", (1, 3, 4), FLOAT)], {"p": ints(1, 1, 3, -2, 4)}),
    "declared": ([node("Relu", ["x"], ["c"])], [("x", (1, 3, 4, -1), FLOAT)], {}),
    "difference": (
        [node("Shape", ["x"], ["s"]), node("Sub", ["s", "p"], ["d"]), node("Expand", ["e", "d"], ["c"])],
        [*_IMAGE, ("e", (1, 1, 1, 1), FLOAT)],
        {"p": ints(0, 0, 0, 5)},
    ),
    "joined": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "last"], ["g"]),
            node("Mul", ["g", "p"], ["m"]),
            node("Squeeze", ["m"], ["q"]),
            node("Cast", ["q"], ["t"], to=INT64),
            node("Unsqueeze", ["t", "first"], ["u"]),
            node("Concat", ["one", "one", "one", "u"], ["d"], axis=0),
            node("Expand", ["e", "d"], ["c"]),
        ],
        [*_IMAGE, ("e", (1, 1, 1, 1), FLOAT)],
        {"p": ints(-1), "last": ints(3), "one": ints(1)},
    ),
    "constant": ([node("Constant", [], ["p"], value_ints=[-2]), node("TopK", ["x", "p"], ["c", "i"])], _IMAGE, {}),
}


def _behind(name: str, bounds: list[str]) -> ModelProto:
    nodes, inputs, constants = _CASES[name]
    cut = [node("Relu", ["c"], ["r"], name="between"), node("Slice", ["r", *bounds], ["y"])]
    return model([*nodes, *cut], inputs, ["y"], {**constants, **_BOUNDS}, opset=18)


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("data_prop", [False, True])
def test_inference_goes_on(name: str, data_prop: bool) -> None:
    built = _behind(name, ["first", "end", "axis"])
    found = inferred_types(built, data_prop=data_prop)
    assert found.graph.node == built.graph.node
    assert not [value.name for value in found.graph.value_info if ":" in value.name]
    infer_shapes(built)
    assert not built.graph.output[0].type.tensor_type.HasField("shape")


def _reason(name: str) -> str:
    """The node that computes a negative size, and what it computes."""
    if name == "declared":
        return "dimension 3 of input 'x' is not fixed; bind it with --shape x=1,3,4,224"
    if name == "sampled":
        return r"node 'affinegrid' \(AffineGrid\), in its part 'shape' .*Invalid dimension value: -2; export"
    last = _CASES[name][0][-1]
    cause = "is given a size below zero" if last.op_type in SIZED else "reads what is too small"
    return rf"node '{last.name}' \({last.op_type}\) computes a value of shape \[[^]]*-\d+\], as it {cause}; give"


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("bounds", [["first", "end", "axis"], ["first", "end"]])
def test_the_model_is_refused(name: str, bounds: list[str], prepare_quickly: Prepare) -> None:
    with pytest.raises(SartorError, match=_reason(name)):
        prepare_quickly(_behind(name, bounds))


def test_the_refusal_names_what_is_too_small(prepare_quickly: Prepare) -> None:
    message = r"node 'conv' \(Conv\) computes a value of shape \[1, 4, 0, -1\], as it reads what is too small; give"
    with pytest.raises(SartorError, match=message):
        prepare_quickly(_behind("convolution", ["first", "end", "axis"]))


_OF_LAST: Mapping[str, tuple[NodeProto, Value, dict[str, Any], int]] = {
    "integers": (node("Pad", ["x", "p"], ["c"]), ("x", (3,), INT64), {"p": ints(-2, -2)}, INT64),
    "drawn": (node("Multinomial", ["x"], ["c"], sample_size=-3, dtype=INT64), ("x", (3, 4), FLOAT), {}, INT64),
    "listed_parts": (node("Split", ["x"], ["c", "d"], split=[-2, 6], axis=1), ("x", (3, 4), FLOAT), {}, FLOAT),
}


@pytest.mark.parametrize("name", _OF_LAST)
def test_inference_goes_on_with_data_that_may_be_shapes(name: str) -> None:
    """Vectors of integers are read as they are, but for those of a negative size."""
    made, given, constants, kind = _OF_LAST[name]
    cut, bounds = node("Slice", ["c", "first", "end", "last"], ["y"]), {**_BOUNDS, "last": ints(-1)}
    built = model([made, cut], [given], [("y", None, kind)], {**constants, **bounds}, opset=11)
    found = inferred_types(built, inferred_types(built), data_prop=True)
    assert found.graph.node == built.graph.node
    assert not found.graph.output[0].type.tensor_type.HasField("shape")


_IN_BRANCH = """<ir_version: 9, opset_import: ["" : 18]> agraph (float[1,1,4,3] x, bool b) => (float[r,c,h,w] y) {
    y = If (b) <
        then_branch = one () => (float[r,c,h,w] a) {
            p = MaxPool <kernel_shape = [5,5]> (x) f = Constant <value_ints = [0]> ()
            t = Constant <value_ints = [1]> () i = Constant <value_ints = [3]> () a = Slice (p, f, t, i)
        },
        else_branch = other () => (float[r,c,h,w] d) { d = Identity (x) }
    >
}"""


def test_slices_in_bodies_are_guarded() -> None:
    built = parser.parse_model(_IN_BRANCH)
    found = inferred_types(built)
    assert [each.op_type for each in found.graph.node[0].attribute[0].g.node][-1] == "Slice"
    assert found.graph.node[0].attribute[0].g.node[-1].input[0] == "p"


def test_a_model_with_such_a_branch_is_refused(prepare_quickly: Prepare) -> None:
    with pytest.raises(SartorError, match=r"node 'If_0' \(If\)"):
        prepare_quickly(parser.parse_model(_IN_BRANCH))


def _shapes_cut() -> ModelProto:
    """A shape of which a part is the target of an expansion: data have to be propagated through the slice."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "first", "end"], ["part"]),
        node("Add", ["part", "one"], ["more"]),
        node("Expand", ["c", "more"], ["y"]),
    ]
    constants = {"first": ints(1), "end": ints(3), "one": ints(1)}
    return model(nodes, [("x", (2, 3, 5), FLOAT), ("c", (1, 1), FLOAT)], ["y"], constants)


def _constants_cut() -> ModelProto:
    """A part of a constant as the first size of an expansion, beside a window, for which slices are guarded."""
    nodes = [
        node("MaxPool", ["x"], ["m"], kernel_shape=[2, 2]),
        node("Slice", ["sizes", "first", "end"], ["part"]),
        node("Concat", ["part", "one"], ["target"], axis=0),
        node("Expand", ["c", "target"], ["y"]),
    ]
    constants = {"sizes": ints(3, 4, 6), "first": ints(1), "end": ints(2), "one": ints(6)}
    return model(nodes, [("x", (1, 2, 3, 5), FLOAT), ("c", (1, 1), FLOAT)], ["y"], constants)


def _difference_cut() -> ModelProto:
    """The target of an expansion is a part of a difference, which might be negative, so that slices are guarded."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Sub", ["s", "one"], ["less"]),
        node("Slice", ["less", "first", "end"], ["part"]),
        node("Expand", ["c", "part"], ["y"]),
    ]
    constants = {"first": ints(1), "end": ints(3), "one": ints(1)}
    return model(nodes, [("x", (2, 5, 7), FLOAT), ("c", (1, 1), FLOAT)], ["y"], constants)


def test_all_that_data_is_propagated_through_is_looked_at() -> None:
    known = {each.name for each in defs.get_all_schemas_with_history() if each.has_data_propagation_function}
    assert known == MEASURED | COMBINED | PASSED | SUBTRACTED


@pytest.mark.parametrize("build", [_shapes_cut, _constants_cut, _difference_cut])
def test_shapes_are_still_propagated(build: Callable[[], ModelProto]) -> None:
    built = build()
    infer_shapes(built)
    assert [each.dim_value for each in built.graph.output[0].type.tensor_type.shape.dim] == [4, 6]


def test_slices_that_are_right_have_the_shapes_that_onnx_finds() -> None:
    nodes = [
        node("Slice", ["x", "first", "end", "axis"], ["a"]),
        node("Slice", ["i", "first", "end"], ["b"], name="rows"),
    ]
    inputs: list[Value] = [("x", (2, 3, 4, 5), FLOAT), ("i", (4, 2), INT64)]
    outputs: list[str | Value] = ["a", ("b", None, INT64)]
    built = model(nodes, inputs, outputs, {"first": ints(1), "end": ints(-1), "axis": ints(-1)})
    infer_shapes(built)
    sizes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in built.graph.output]
    assert sizes == [[2, 3, 4, 3], [2, 2]]
    assert built.opset_import == [helper.make_opsetid("", 17)]
    assert np.all([not each.domain for each in built.graph.node])
