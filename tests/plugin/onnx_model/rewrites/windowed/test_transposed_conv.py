"""Transposed convolutions: by blocks as large as the stride, and those whose padding is larger than their kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.plugin.onnx_model.builders import FLOAT, Value, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

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
