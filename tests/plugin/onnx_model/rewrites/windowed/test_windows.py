"""Windows: maxima of 8 bits, signals as images of one row, and powers of windows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import sartor
import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare
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


_SIGNAL: list[Value] = [("x", (2, 6, 33), FLOAT)]
_WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_TOLERANCE = 1e-5


def _stack() -> ModelProto:
    """Causal, dilated, grouped and strided convolutions with what lies between them in networks for audio."""
    nodes = [
        node("Pad", ["x", "causal"], ["p"]),
        node("Conv", ["p", "w0", "b"], ["a"], name="causal"),
        node("PRelu", ["a", "slope"], ["c"]),
        node("Conv", ["c", "w1"], ["d"], name="depthwise", group=8, dilations=[2], pads=[4, 0]),
        node("Add", ["c", "d"], ["e"]),
        node("Mul", ["e", "scale"], ["f"]),
        node("Concat", ["e", "f"], ["g"], axis=-2),
        node("MaxPool", ["g"], ["h"], kernel_shape=[3], strides=[2], pads=[1, 1]),
        node("AveragePool", ["h"], ["i"], kernel_shape=[2], ceil_mode=1, strides=[2]),
        node("ConvTranspose", ["i", "w2"], ["y"], strides=[2], pads=[1, 0], output_padding=[1]),
    ]
    constants = {
        "causal": ints(0, 0, 2, 0, 0, 0),
        **{"w0": weights(8, 6, 3), "b": weights(8), "w1": weights(8, 1, 3), "w2": weights(16, 5, 4)},
        **{"slope": weights(8, 1), "scale": weights(8, 1, seed=3)},
    }
    return model(nodes, _SIGNAL, ["y"], constants)


def _windowed(built: ModelProto) -> list[NodeProto]:
    return [each for each in built.graph.node if each.op_type in _WINDOWED]


def test_a_stack_is_computed_as_images(prepare_quickly: Prepare) -> None:
    built, x = _stack(), weights(2, 6, 33, seed=5)
    prepared = prepare_quickly(built).model
    assert relative_error(run(prepared, {"x": x})["y"], run(built, {"x": x})["y"]) <= _TOLERANCE
    kernels = [
        list(item.ints) for each in _windowed(prepared) for item in each.attribute if item.name == "kernel_shape"
    ]
    assert [kernel[0] for kernel in kernels] == [1] * len(kernels)
    # Only the ends of the stack are reshaped.
    reshaped = [each.op_type for each in prepared.graph.node if each.op_type in ("Squeeze", "Unsqueeze")]
    assert sorted(reshaped) == ["Squeeze", "Unsqueeze"]


@pytest.mark.parametrize(
    "operand", [np.float32(0.5), weights(33), weights(6, 1), weights(6, 33), weights(1, 6, 1), weights(2, 6, 33)]
)
def test_operands_of_any_rank(operand: np.ndarray, prepare_quickly: Prepare) -> None:
    nodes = [node("MaxPool", ["x"], ["p"], kernel_shape=[1]), node("Add", ["o", "p"], ["y"])]
    built, x = model(nodes, _SIGNAL, ["y"], {"o": operand}), weights(2, 6, 33, seed=5)
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"])


def test_what_is_wider_than_a_signal_stays(prepare_quickly: Prepare) -> None:
    nodes = [node("MaxPool", ["x"], ["p"], kernel_shape=[1]), node("Add", ["o", "p"], ["y"])]
    built, x = model(nodes, _SIGNAL, ["y"], {"o": weights(4, 1, 1, 1)}), weights(2, 6, 33, seed=5)
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"])


_CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "fitting": ((9, 7), {"kernel_shape": [3, 3], "strides": [3, 2]}),
    "rest": ((8, 7), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}),
    "after the input": ((7, 8), {"kernel_shape": [1, 4], "strides": [3, 2], "pads": [0, 2, 0, 3]}),
    "signal after the input": ((6,), {"kernel_shape": [1], "strides": [4]}),
    "signal of one window": ((3,), {"kernel_shape": [4], "strides": [4], "pads": [0, 3]}),
    "dilated": ((9, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [2, 1, 1, 1], "dilations": [2, 3]}),
    "not dilated": ((3, 7), {"kernel_shape": [3, 2], "strides": [3, 1], "pads": [1, 0, 1, 0], "dilations": [1, 1]}),
    "without padding": ((8, 7), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "VALID"}),
}


@pytest.mark.parametrize("case", _CASES)
def test_as_onnx_runtime_does(case: str) -> None:
    """All orders, rounded up or not, in one model, which runs on numbers of all scales."""
    sizes, options = _CASES[case]
    image = np.random.default_rng(0).standard_normal((1, 2, *sizes)).astype(np.float32)
    nodes = [
        helper.make_node("LpPool", ["x"], [f"y{order}{ceil_mode}"], p=order, ceil_mode=ceil_mode, **options)
        for order, ceil_mode in itertools.product((1, 2, 3), (0, 1))
    ]
    # The sizes are left to inference, which counts a window after the input.
    results = [
        helper.make_tensor_value_info(y, TensorProto.FLOAT, [f"{y}d{axis}" for axis in range(image.ndim)])
        for y in (node.output[0] for node in nodes)
    ]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)
    graph = helper.make_graph(nodes, "graph", [value], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    reference, compiled = onnxruntime.InferenceSession(model.SerializeToString()), sartor.backend.prepare(model)
    for scale in (1e-3, 1.0, 1e3):
        scaled = image * np.float32(scale)
        for found, wanted in zip(compiled.run([scaled]), reference.run(None, {"x": scaled}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("opset", [11, 17, 18])
def test_of_every_opset(opset: int) -> None:
    image = np.random.default_rng(0).standard_normal((1, 2, 6, 7)).astype(np.float32)
    node = helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], pads=[1, 0, 0, 2], strides=[1, 2], p=3)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)
    graph = helper.make_graph([node], "graph", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": image})
    (found,) = sartor.backend.run_model(model, [image])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
