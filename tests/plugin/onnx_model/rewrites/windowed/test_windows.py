"""Maxima of 8-bit integers whose padding must never win."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import sartor.backend
from tests.plugin.onnx_model.together import Cases, computed_together

_PADS = ([1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 0])
_TYPES: Mapping[int, type[np.integer[Any]]] = {TensorProto.INT8: np.int8, TensorProto.UINT8: np.uint8}


@pytest.mark.parametrize("element", _TYPES, ids=lambda each: str(_TYPES[each].__name__))
@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("op_type", ["MaxPool", "NhwcMaxPool"])
def test_padding_is_below_all_numbers(op_type: str, ceil_mode: int, element: int) -> None:
    is_last, random = op_type == "NhwcMaxPool", np.random.default_rng(0)
    shape = (1, 7, 6, 3) if is_last else (1, 3, 7, 6)
    highest = -20 if element == TensorProto.INT8 else 90
    image = random.integers(highest - 70, highest, shape).astype(_TYPES[element])
    options: dict[str, Any] = {"kernel_shape": [3, 2], "ceil_mode": ceil_mode}
    domain = "com.microsoft" if is_last else ""
    nodes = [
        helper.make_node(op_type, ["x"], [f"y{stride}{pads}"], domain=domain, strides=[stride, 2], pads=pads, **options)
        for stride in (1, 2)
        for pads in _PADS
    ]
    values = [
        helper.make_tensor_value_info(node.output[0], element, ["n", "c", "h", f"w{number}"])
        for number, node in enumerate(nodes)
    ]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", element, shape)], values)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": image})
    for found, wanted in zip(sartor.backend.run_model(model, [image]), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


_SHAPES: list[tuple[tuple[int, ...], list[int], list[int]]] = [
    ((1, 3, 7, 6), [3, 2], [1, 0, 1, 1]),
    ((1, 2, 4, 5, 6), [2, 3, 2], [0] * 6),
    ((1, 2, 4, 5, 6), [2, 3, 2], [1, 0, 1, 0, 1, 1]),
]


def test_in_three_dimensions_and_with_indices_too() -> None:
    """IREE's importer crashes on such a maximum in three dimensions."""
    cases = {}
    for (shape, kernel, pads), outputs in itertools.product(_SHAPES, (["y"], ["y", "indices"])):
        strides = [1, 2, 1][: len(kernel)]
        node = helper.make_node("MaxPool", ["x"], outputs, kernel_shape=kernel, strides=strides, pads=pads)
        image = np.random.default_rng(0).integers(-90, -20, shape).astype(np.int8)
        cases[f"{shape} {pads} {outputs}"] = _model(node, image), {"x": image}
    _check(cases)


def test_windows_may_be_dropped_and_rounded_up_at_once() -> None:
    options: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 1], "ceil_mode": 1}
    node = helper.make_node("MaxPool", ["x"], ["y"], **options)
    image = np.random.default_rng(0).integers(-90, -20, (1, 3, 7, 6))
    typed = [image.astype(dtype) for dtype in (np.int8, np.uint8, np.float32)]
    _check({str(each.dtype): (_model(node, each), {"x": each}) for each in typed})


def _check(cases: Cases) -> None:
    """Poolings beside ONNX Runtime."""
    for name, found in computed_together(cases).items():
        model, feeds = cases[name]
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted, err_msg=name)


def _model(node: NodeProto, image: np.ndarray[Any, Any]) -> ModelProto:
    element = helper.np_dtype_to_tensor_dtype(image.dtype)
    value = helper.make_tensor_value_info("x", element, image.shape)
    sizes = ["n", "c", "d", "h", "w"][: image.ndim]
    elements = [element, TensorProto.INT64]
    results = [helper.make_tensor_value_info(*each, sizes) for each in zip(node.output, elements, strict=False)]
    graph = helper.make_graph([node], "graph", [value], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
