"""Transposed convolutions by blocks, and pads that are negative or stand before others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, Array, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.together import computed_together

_TOLERANCE = 1e-5


@pytest.mark.parametrize(("shape", "kernel"), [((2, 3, 5, 4), (2, 3)), ((1, 3, 7), (4,)), ((1, 3, 2, 3, 2), (2, 1, 3))])
@pytest.mark.parametrize("bias", ["none", "constant", "computed"])
def test_blocks_are_products(
    shape: tuple[int, ...], kernel: tuple[int, ...], bias: str, prepare_quickly: Prepare
) -> None:
    inputs: list[Value] = [("x", shape, FLOAT)]
    constants = {"w": weights(3, 4, *kernel)}
    names = ["x", "w"] if bias == "none" else ["x", "w", "b"]
    if bias == "constant":
        constants["b"] = weights(4, seed=1)
    if bias == "computed":
        inputs.append(("b", (4,), FLOAT))
    nodes = [node("ConvTranspose", names, ["y"], strides=list(kernel))]
    built, feeds = model(nodes, inputs, ["y"], constants), {"x": weights(*shape, seed=2)}
    if bias == "computed":
        feeds["b"] = weights(4, seed=1)
    prepared = prepare_quickly(built).model
    assert "ConvTranspose" not in {each.op_type for each in prepared.graph.node}
    kernels = [
        np.prod(item.ints) for each in prepared.graph.node for item in each.attribute if item.name == "kernel_shape"
    ]
    assert kernels == [1]
    assert relative_error(run(prepared, feeds)["y"], run(built, feeds)["y"]) <= _TOLERANCE


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (1, {"pads": [1, 0]}),
        (1, {"pads": [2, 1], "group": 2}),
        (1, {"pads": [1, 1]}),
        (3, {"pads": [0, 4], "output_padding": [1]}),
        (2, {"pads": [4, 3], "dilations": [2]}),
    ],
)
def test_padding_beyond_the_kernel_takes_elements_away(
    kernel: int, options: dict[str, Any], prepare_quickly: Prepare
) -> None:
    nodes = [node("ConvTranspose", ["x", "w"], ["y"], strides=[2], **options)]
    built, feeds = model(nodes, [("x", (1, 4, 5), FLOAT)], ["y"], {"w": weights(4, 2, kernel)}), {"x": weights(1, 4, 5)}
    prepared = prepare_quickly(built).model
    assert "ConvTranspose" not in {each.op_type for each in prepared.graph.node}
    assert relative_error(run(prepared, feeds)["y"], run(built, feeds)["y"]) <= _TOLERANCE


@pytest.mark.parametrize(
    ("sizes", "kernel", "strides", "options"),
    [
        ((5, 6), (4, 4), (2, 2), {"pads": [1, 1, 1, 1]}),
        ((5, 6), (3, 3), (2, 2), {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((5, 6), (2, 3), (2, 2), {}),
        ((5, 6), (5, 2), (3, 1), {"pads": [2, 0, 1, 1], "output_padding": [2, 0]}),
        ((7,), (16,), (8,), {"pads": [4, 4]}),
        ((7,), (2,), (3,), {"output_padding": [2]}),
        ((4,), (5,), (2,), {"pads": [3, 0]}),
        ((1, 1), (3, 3), (2, 2), {"pads": [1, 1, 1, 1]}),
        ((2, 3, 2), (3, 2, 4), (2, 2, 2), {"pads": [1, 0, 1, 0, 1, 1]}),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_no_zeros_are_inserted(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    options: dict[str, Any],
    bias: bool,
    prepare_quickly: Prepare,
) -> None:
    constants = {"w": weights(3, 4, *kernel)} | ({"b": weights(4, seed=1)} if bias else {})
    nodes = [node("ConvTranspose", ["x", *constants], ["y"], strides=list(strides), **options)]
    shape = (2, 3, *sizes)
    built, feeds = model(nodes, [("x", shape, FLOAT)], ["y"], constants), {"x": weights(*shape, seed=2)}
    prepared = prepare_quickly(built).model
    operators = {each.op_type for each in prepared.graph.node}
    assert "ConvTranspose" not in operators
    assert "Pad" not in operators
    convs = [each for each in prepared.graph.node if each.op_type == "Conv"]
    (taps,) = [list(item.ints) for conv in convs for item in conv.attribute if item.name == "kernel_shape"]
    # Signals become images of one row.
    assert taps[-len(kernel) :] == [-(-each // by) for each, by in zip(kernel, strides, strict=True)]
    assert relative_error(run(prepared, feeds)["y"], run(built, feeds)["y"]) <= _TOLERANCE


def _same_cases() -> Iterator[tuple[str, int, int, int, int]]:
    modes = ("SAME_LOWER", "SAME_UPPER")
    for mode, kernel, stride, dilation in itertools.product(modes, (1, 2, 3, 5), (1, 2, 3), (1, 2)):
        # ONNX Runtime takes less output padding than a stride.
        for extra in range(stride):
            yield mode, kernel, stride, dilation, extra


@pytest.mark.parametrize("size", [1, 5])
def test_automatic_pads_are_those_of_onnx_runtime(size: int, prepare_quickly: Prepare) -> None:
    for mode, kernel, stride, dilation, extra in _same_cases():
        options: dict[str, Any] = {"strides": [stride], "dilations": [dilation], "output_padding": [extra]}
        nodes = [node("ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, **options)]
        built = model(nodes, [("x", (1, 3, size), FLOAT)], ["y"], {"w": weights(3, 2, kernel)})
        feeds = {"x": weights(1, 3, size, seed=2)}
        prepared, expected = prepare_quickly(built), run(built, feeds)["y"]
        assert prepared.outputs[0].shape == expected.shape, (mode, kernel, options)
        assert relative_error(run(prepared.model, feeds)["y"], expected) <= _TOLERANCE, (mode, kernel, options)


@pytest.mark.parametrize("rows", [20, 21])
def test_declared_rows_of_automatic_pads_do_not_matter(rows: int, prepare_quickly: Prepare) -> None:
    options: dict[str, Any] = {"strides": [2, 1], "output_padding": [1, 0], "group": 3, "auto_pad": "SAME_LOWER"}
    nodes = [node("ConvTranspose", ["x", "w"], ["h"], **options), node("Relu", ["h"], ["y"])]
    built = model(nodes, [("x", (1, 3, 10, 4), FLOAT)], ["y"], {"w": weights(3, 2, 3, 2)})
    built.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, [1, 6, rows, 4]))
    feeds = {"x": weights(1, 3, 10, 4, seed=2)}
    prepared = prepare_quickly(built)
    assert prepared.outputs[0].shape == (1, 6, 20, 4)
    assert relative_error(run(prepared.model, feeds)["y"], run(built, feeds)["y"]) <= _TOLERANCE


@pytest.mark.parametrize("pads", [(-1, 2), (1, 2)])
def test_axes_of_32_bits(pads: tuple[int, int], prepare_quickly: Prepare) -> None:
    constants = {"p": ints(*pads), "v": np.float32(0.5), "a": np.array([-1], np.int32)}
    nodes = [node("Pad", ["x", "p", "v", "a"], ["y"])]
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y"], constants, opset=18)
    x = weights(2, 3)
    low, high = pads
    expected = np.pad(x[:, max(-low, 0) :], ((0, 0), (max(low, 0), high)), constant_values=0.5)
    # ONNX Runtime does not read such axes.
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], expected)


@pytest.mark.parametrize("pads", [(0, -2, 0, -2), (0, -4, 0, 5)])
def test_cropping_more_than_there_is(pads: tuple[int, ...], prepare_quickly: Prepare) -> None:
    built = model([node("Pad", ["x", "p"], ["y"])], [("x", (2, 3), FLOAT)], ["y"], {"p": ints(*pads)}, opset=18)
    with pytest.raises(UnsupportedModelError, match=r"node 'pad' \(Pad\)"):
        prepare_quickly(built)


_SECOND: dict[str, tuple[NodeProto, dict[str, Array]]] = {
    "pad": (node("Pad", ["padded", "q"], ["y"], name="second"), {"q": ints(0, 0, 3, 0, 1, 0, 0, 0)}),
    "conv": (node("Conv", ["padded", "w"], ["y"], pads=[1, 0, 1, 2]), {"w": weights(4, 3, 2, 2)}),
    "maxpool": (node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
    "mirror": (node("Pad", ["padded", "q"], ["y"], name="second", mode="reflect"), {"q": ints(0, 0, 3, 0, 0, 0, 1, 0)}),
    "averagepool": (node("AveragePool", ["padded"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
}
_PADS = ints(0, 0, 1, 0, 0, 0, 2, 3)


def test_a_pad_before_other_padding_is_a_concatenation(prepare_quickly: Prepare) -> None:
    x, cases, wanted = weights(2, 3, 5, 7), {}, {}
    for second, axes in itertools.product([each for each in _SECOND if each != "mirror"], [None, ints(3, -2)]):
        built, name = _padded_twice(second, axes), f"{second}, axes {axes}"
        prepared, expected = prepare_quickly(built).model, run(built, {"x": x})["y"]
        assert [item.op_type for item in prepared.graph.node][:3] == ["Relu", "Concat", "Concat"], name
        np.testing.assert_allclose(run(prepared, {"x": x})["y"], expected, rtol=1e-6, err_msg=name)
        built.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, expected.shape))
        cases[name], wanted[name] = (built, {"x": x}), expected
    for name, (found,) in computed_together(cases).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


def _padded_twice(second: str, axes: Array | None) -> ModelProto:
    last, constants = _SECOND[second]
    given = {"p": _PADS} if axes is None else {"p": ints(0, 1, 3, 2), "a": axes}
    first = node("Pad", ["positive", "p", "v", *(["a"] if axes is not None else [])], ["padded"])
    nodes = [node("Relu", ["x"], ["positive"]), first, last]
    constants = {**constants, **given, "v": np.array(0.5, np.float32)}
    return model(nodes, [("x", (2, 3, 5, 7), FLOAT)], ["y"], constants, opset=18)


@pytest.mark.parametrize(
    ("before", "value", "mode", "last"),
    [
        ("Identity", 0.5, "constant", "conv"),
        ("Relu", 0, "constant", "conv"),
        ("Relu", 0, "constant", "pad"),
        ("Relu", 0.5, "edge", "conv"),
        ("Relu", -np.inf, "constant", "maxpool"),
        ("Relu", 0.5, "constant", "mirror"),
    ],
)
def test_other_pads_stay(before: str, value: float, mode: str, last: str, prepare_quickly: Prepare) -> None:
    after, constants = _SECOND[last]
    first = node("Pad", ["before", "p", "v"] if mode == "constant" else ["before", "p"], ["padded"], mode=mode)
    constants = {**constants, "p": _PADS, **({"v": np.array(value, np.float32)} if mode == "constant" else {})}
    built = model([node(before, ["x"], ["before"]), first, after], [("x", (2, 3, 5, 7), FLOAT)], ["y"], constants)
    prepared, x = prepare_quickly(built).model, weights(2, 3, 5, 7)
    assert not any(item.op_type == "Concat" and item.name.startswith("pad") for item in prepared.graph.node)
    np.testing.assert_allclose(run(prepared, {"x": x})["y"], run(built, {"x": x})["y"], rtol=1e-6)


def test_integers_of_64_bits_are_padded_exactly(prepare_quickly: Prepare) -> None:
    largest = 2**63 - 1
    constants = {"p": ints(1, 0), "q": ints(0, 2), "v": np.int64(largest), "w": np.int64(0)}
    nodes = [node("Neg", ["x"], ["n"]), node("Pad", ["n", "p", "v"], ["m"]), node("Pad", ["m", "q", "w"], ["y"])]
    built = model(nodes, [("x", (2,), TensorProto.INT64)], [("y", (5,), TensorProto.INT64)], constants, opset=18)
    prepared = prepare_quickly(built).model
    assert "Concat" in [item.op_type for item in prepared.graph.node]
    assert run(prepared, {"x": np.array([3, -(2**60)])})["y"].tolist() == [largest, -3, 2**60, 0, 0]


def test_what_is_added_is_no_large_constant(prepare_quickly: Prepare) -> None:
    pool = node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    nodes = [node("Relu", ["x"], ["r"]), node("Pad", ["r", "p"], ["padded"]), pool]
    built = model(nodes, [("x", (1, 64, 112, 112), FLOAT)], ["y"], {"p": ints(0, 0, 3, 3, 0, 0, 3, 3)}, opset=18)
    prepared = prepare_quickly(built).model
    assert "Concat" in [item.op_type for item in prepared.graph.node]
    assert prepared.ByteSize() < 100_000
