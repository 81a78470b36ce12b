"""Transposed convolutions whose kernel is as large as their stride, or smaller than their padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
