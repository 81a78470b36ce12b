"""Nodes whose operands do not fit each other are refused by name, and those that fit are prepared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.rewrites.operator_sets.check_operands import check_operands
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, weights

_NORMS = {"scale": (4,), "B": (4,), "input_mean": (4,), "input_var": (4,)}
_GROUPS = {"scale": (4,), "bias": (4,)}
_TRANSPOSED = {"W": (4, 3, 3, 3), "B": (6,)}
_SCALES = {"x_scale": (), "x_zero_point": (), "w_scale": (6,), "w_zero_point": (6,), "y_scale": (), "y_zero_point": ()}
_SIZES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "BatchNormalization": _NORMS,
    "GroupNormalization": _GROUPS,
    "ConvTranspose": _TRANSPOSED,
}
_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "BatchNormalization": {},
    "GroupNormalization": {"num_groups": 2},
    "ConvTranspose": {"group": 2, "strides": [2, 2], "output_padding": [1, 1]},
}


def _built(operator: str, sizes: Mapping[str, tuple[int, ...]], changed: Mapping[str, Any]) -> ModelProto:
    operands = {name: weights(*shape) for name, shape in {**_SIZES[operator], **sizes}.items()}
    built = node(operator, ["x", *operands], ["y"], name="odd", **{**_ATTRIBUTES[operator], **changed})
    opset = 21 if operator == "GroupNormalization" else 17
    return model([built], [("x", (1, 4, 5, 5), FLOAT)], ["y"], operands, opset=opset)


@pytest.mark.parametrize("operator", _SIZES)
def test_operands_that_fit_are_prepared(operator: str) -> None:
    assert prepare(_built(operator, {}, {})).model.graph.node


@pytest.mark.parametrize("opset", [7, 8])
def test_each_element_of_a_sample_may_be_normalised_by_itself(opset: int) -> None:
    built = _built("BatchNormalization", dict.fromkeys(_NORMS, (4, 5, 5)), {"spatial": 0})
    built.opset_import[0].version = opset
    assert prepare(built).model.graph.node
    built = _built("BatchNormalization", {**dict.fromkeys(_NORMS, (4, 5, 5)), "B": (4,)}, {"spatial": 0})
    built.opset_import[0].version = opset
    with pytest.raises(UnsupportedModelError, match=r"'B', where samples of shape \[4, 5, 5\] need \[4, 5, 5\];"):
        prepare(built)


def test_shapes_are_inferred_only_where_one_is_unknown() -> None:
    built = _built("BatchNormalization", {}, {})
    assert check_operands(built) == ()
    assert not built.graph.value_info
    built.graph.node.insert(0, node("Relu", ["image"], ["x"]))
    built.graph.input[0].name = "image"
    check_operands(built)
    assert [value_info.name for value_info in built.graph.value_info] == ["x"]


def test_operators_of_other_domains_are_not_looked_at() -> None:
    built = _built("BatchNormalization", {"B": (3,)}, {})
    built.graph.node[0].domain = "custom"
    assert check_operands(built) == ()


@pytest.mark.parametrize(
    ("operator", "sizes", "changed", "reason"),
    [
        *(
            ("BatchNormalization", {name: (3,)}, {}, f"has [3] as the shape of its input '{name}', where 4 channels")
            for name in _NORMS
        ),
        ("BatchNormalization", {"scale": (4, 1)}, {}, "has [4, 1] as the shape of its input 'scale'"),
        ("GroupNormalization", {}, {"num_groups": 3}, "has 3 as its attribute 'num_groups', which does not divide 4"),
        ("GroupNormalization", {"scale": (2,)}, {}, "has [2] as the shape of its input 'scale', where 4 channels need"),
        ("GroupNormalization", {"bias": (3,)}, {}, "has [3] as the shape of its input 'bias'"),
        ("ConvTranspose", {}, {"group": 3}, "has 3 as its attribute 'group', which does not divide 4 channels"),
        ("ConvTranspose", {"W": (3, 3, 3, 3)}, {}, "whose first size is not the 4 channels of its input"),
        ("ConvTranspose", {"W": (4, 3, 3)}, {}, "has weights of shape [4, 3, 3] for an input of shape [1, 4, 5, 5]"),
        ("ConvTranspose", {}, {"kernel_shape": [2, 3]}, "has [2, 3] as its attribute 'kernel_shape', and weights of"),
        ("ConvTranspose", {"B": (3,)}, {}, "has [3] as the shape of its input 'B', where 6 channels of its result"),
        ("ConvTranspose", {}, {"output_padding": [0, 2]}, "has 2 as its attribute 'output_padding', which has to be"),
        ("ConvTranspose", {}, {"output_padding": [1]}, "has 1 numbers as its attribute 'output_padding', which needs"),
        ("ConvTranspose", {}, {"output_shape": [9]}, "has 1 numbers as its attribute 'output_shape', which needs 2"),
    ],
)
def test_operands_that_do_not_fit_are_refused_by_name(
    operator: str, sizes: dict[str, tuple[int, ...]], changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        prepare(_built(operator, sizes, changed))
    said = str(refused.value)
    assert said.startswith(f"node 'odd' ({operator}) ")
    assert reason in said
    assert said.endswith("; export the model again")


def test_group_normalisation_needs_the_opset_that_defined_it_anew() -> None:
    built = _built("GroupNormalization", {"scale": (2,), "bias": (2,)}, {})
    built.opset_import[0].version = 20
    with pytest.raises(UnsupportedModelError, match=r"^node 'odd' \(GroupNormalization\) is of opset 20, .* opset 21"):
        prepare(built)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("w_scale", (5,), "has [5] as the shape of its input 'w_scale', where 6 channels of its result need one"),
        ("w_zero_point", (5,), "has [5] as the shape of its input 'w_zero_point'"),
        ("x_scale", (4,), "has [4] as the shape of its input 'x_scale', where all channels need one number"),
        ("y_zero_point", (6,), "has [6] as the shape of its input 'y_zero_point'"),
        ("B", (5,), "has [5] as the shape of its input 'B', where 6 channels of its result need [6]"),
        ("w", (6, 3, 3, 3), "has weights of shape [6, 3, 3, 3] in 1 groups for an input of shape [1, 4, 5, 5]"),
        (None, (), ""),
    ],
)
def test_scales_of_a_quantised_convolution_fit_its_weights(
    name: str | None, shape: tuple[int, ...], reason: str
) -> None:
    sizes: dict[str, tuple[int, ...]] = {**_SCALES, "w": (6, 4, 3, 3), "B": (6,), **({name: shape} if name else {})}
    types = {"B": np.int32, **{size: np.float32 for size in sizes if size.endswith("scale")}}
    operands = {each: np.ones(size, types.get(each, np.uint8)) for each, size in sizes.items()}
    order = ("x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "B")
    built = node("QLinearConv", list(order), ["y"], name="odd")
    whole = model([built], [("x", (1, 4, 5, 5), TensorProto.UINT8)], [("y", (1, 6, 3, 3), TensorProto.UINT8)], operands)
    if name is None:
        assert prepare(whole).model.graph.node
        return
    with pytest.raises(UnsupportedModelError, match=rf"^node 'odd' \(QLinearConv\) {re.escape(reason)}"):
        prepare(whole)


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize(("scale", "zero", "fits"), [((4,), (3,), False), ((4,), (4,), True), ((), (1,), True)])
def test_scales_and_zero_points_are_as_many(
    operator: str, scale: tuple[int, ...], zero: tuple[int, ...], fits: bool
) -> None:
    operands = {"scale": np.ones(scale, np.float32), "zero": np.ones(zero, np.uint8)}
    built = node(operator, ["x", "scale", "zero"], ["y"], name="odd")
    kinds = (FLOAT, TensorProto.UINT8) if operator == "QuantizeLinear" else (TensorProto.UINT8, FLOAT)
    whole = model([built], [("x", (1, 4, 5, 5), kinds[0])], [("y", (1, 4, 5, 5), kinds[1])], operands)
    if fits:
        assert prepare(whole).model.graph.node
        return
    with pytest.raises(UnsupportedModelError, match=rf"^node 'odd' \({operator}\) has scales of shape \[4\] with zero"):
        prepare(whole)


@pytest.mark.parametrize(
    ("depth", "values", "reason"),
    [
        (0, (2,), "has 0 as its input 'depth', which is a number of classes"),
        (float("inf"), (2,), "has inf as its input 'depth', which is a number of classes"),
        (float("nan"), (2,), "has nan as its input 'depth', which is a number of classes"),
        (-3, (2,), "has -3 as its input 'depth', which is a number of classes"),
        ([3, 4], (2,), "has [2] as the shape of its input 'depth', which is one number"),
        (3, (3,), "has [3] as the shape of its input 'values', which are those of off and on"),
        (3, (2,), ""),
    ],
)
def test_one_hot_has_classes(depth: float | list[int], values: tuple[int, ...], reason: str) -> None:
    operands = {"depth": np.array(depth), "values": np.ones(values, np.float32)}
    built = node("OneHot", ["x", "depth", "values"], ["y"], name="odd")
    whole = model([built], [("x", (3,), INT64)], [("y", (3, 3), FLOAT)], operands)
    if not reason:
        assert prepare(whole).model.graph.node
        return
    with pytest.raises(UnsupportedModelError, match=rf"^node 'odd' \(OneHot\) {re.escape(reason)}"):
        prepare(whole)
