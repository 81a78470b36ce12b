"""Operators in forms that exporters write, compiled by stock IREE and compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto

import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Array, Value, model, node, run, weights
from tests.plugin.onnx_model.together import computed_together


def _model(
    nodes: list[NodeProto], inputs: list[Value], constants: Mapping[str, Any], opset: int = 17, kind: int = FLOAT
) -> ModelProto:
    return model(nodes, inputs, [("y", None, kind)], constants, opset)


def _resize(mode: str, *sizes: int) -> ModelProto:
    """Linear, of a signal or a volume, to one more than twice each size."""
    target = np.array([1, 2, *(2 * size + 1 for size in sizes)], np.int64)
    resize = node("Resize", ["x", "", "", "s"], ["y"], mode="linear", coordinate_transformation_mode=mode)
    return _model([resize], [("x", (1, 2, *sizes), FLOAT)], {"s": target})


def _power(base: tuple[int, ...], exponent: Array) -> ModelProto:
    positive = node("Abs", ["x"], ["a"])
    return _model([positive, node("Pow", ["a", "e"], ["y"])], [("x", base, FLOAT)], {"e": exponent.astype(np.float32)})


def _gates(operator: str, gates: int, activations: list[str], **parameters: list[float]) -> ModelProto:
    names = {"hidden_size": 3, "activations": activations, **parameters}
    made = node(operator, ["x", "w", "r"], ["y"], **names)
    return _model([made], [("x", (4, 1, 2), FLOAT)], {"w": weights(1, 3 * gates, 2), "r": weights(1, 3 * gates, 3)})


_VOLUME: list[Value] = [("x", (1, 4, 5, 5, 5), FLOAT)]
_FILTERS = weights(4, 1, 3, 2, 3)
_NORM = {"s": weights(4), "t": weights(4, seed=1), "m": weights(4, seed=2), "v": np.abs(weights(4, seed=3))}
CASES: dict[str, ModelProto] = {
    "resize of a signal": _resize("half_pixel", 5),
    "resize of a signal by corners": _resize("align_corners", 5),
    "resize of a volume": _resize("asymmetric", 5, 4, 3),
    "depthwise volumes": _model(
        [node("Conv", ["x", "w", "b"], ["y"], group=4, strides=[1, 2, 1], pads=[1, 0, 1, 1, 1, 0])],
        _VOLUME,
        {"w": _FILTERS, "b": weights(4)},
    ),
    "depthwise volumes of computed filters": _model(
        [node("Conv", ["x", "w"], ["y"], group=4)], [*_VOLUME, ("w", (4, 1, 3, 2, 3), FLOAT)], {}
    ),
    "transposed depthwise volumes": _model(
        [node("ConvTranspose", ["x", "w"], ["y"], group=4, strides=[2, 1, 2])], _VOLUME, {"w": _FILTERS}
    ),
    "powers of volumes": _model([node("LpPool", ["x"], ["y"], kernel_shape=[2, 2, 3])], _VOLUME, {}, opset=18),
    "power that widens": _power((2, 1), np.full(3, 0.5)),
    "large power that widens": _power((2, 1), np.full(3, 70.0)),
    "power of more dimensions": _power((3,), np.array([[-1.0]])),
    "norm behind a column": _model(
        [node("Gemm", ["x", "w", "c"], ["g"]), node("BatchNormalization", ["g", *"stmv"], ["y"])],
        [("x", (4, 3), FLOAT)],
        {"w": weights(3, 4), "c": weights(4, 1), **_NORM},
    ),
    "transposed with a kernel below the stride": _model(
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")],
        [("x", (1, 4, 5, 5), FLOAT)],
        {"w": weights(4, 2, 1, 1)},
    ),
    "hard gates": _gates("LSTM", 4, ["HardSigmoid", "Tanh", "Tanh"]),
    "hard gates by default parameters": _gates(
        "GRU", 3, ["HardSigmoid", "Tanh"], activation_alpha=[0.2], activation_beta=[0.5]
    ),
}


def _computed(built: ModelProto, *values: Array, shape: tuple[int, ...]) -> Array:
    (found,) = sartor.backend.run_model(_shaped(built, shape), list(values))
    return np.asarray(found)


def _shaped(built: ModelProto, shape: tuple[int, ...]) -> ModelProto:
    """The model with a shape for its result, which ONNX's checker asks for."""
    for size in shape:
        built.graph.output[0].type.tensor_type.shape.dim.add(dim_value=size)
    return built


def test_as_onnx_runtime_does() -> None:
    cases, wanted = {}, {}
    for name, built in CASES.items():
        feeds = {
            value.name: weights(*(each.dim_value for each in value.type.tensor_type.shape.dim), seed=index)
            for index, value in enumerate(built.graph.input)
        }
        wanted[name] = run(built, feeds)["y"]
        cases[name] = _shaped(built, wanted[name].shape), feeds
    for name, (found,) in computed_together(cases).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("made", "shape", "scale"),
    [
        (node("LpNormalization", ["x"], ["y"], p=2), (2, 768), 20),
        (node("LpPool", ["x"], ["y"], kernel_shape=[3, 3], p=2), (1, 2, 6, 6), 200),
    ],
    ids=["norm", "pool"],
)
def test_squares_beyond_float16(made: NodeProto, shape: tuple[int, ...], scale: float) -> None:
    x = weights(*shape, scale=scale)
    built = _model([made], [("x", shape, FLOAT16)], {}, opset=18, kind=FLOAT16)
    wide = _model([made], [("x", shape, FLOAT)], {}, opset=18)
    expected = run(wide, {"x": x.astype(np.float16).astype(np.float32)})["y"]
    found = _computed(built, x.astype(np.float16), shape=expected.shape)
    np.testing.assert_allclose(found, expected.astype(np.float16), rtol=2e-3)


@pytest.mark.parametrize("parameters", [np.float16, np.float32])
def test_group_norms_of_float16(parameters: type) -> None:
    """Exporters leave the parameters in f32; ONNX Runtime has no kernel for CPUs."""
    x, scale, shift = weights(1, 256, 256, 4, scale=3).astype(np.float16), weights(4), weights(4, seed=1)
    constants: dict[str, Array] = {"g": scale.astype(parameters), "b": shift.astype(parameters)}
    made = node("GroupNorm", ["x", "g", "b"], ["y"], domain=MS, groups=2, activation=0)
    built = _model([made], [("x", x.shape, FLOAT16)], constants, kind=TensorProto.FLOAT16)
    found = _computed(built, x, shape=x.shape)
    rows = x.astype(np.float64).reshape(1, -1, 2, 2)
    normal = (rows - rows.mean((1, 3), keepdims=True)) / np.sqrt(rows.var((1, 3), keepdims=True) + 1e-5)
    expected = normal.reshape(x.shape) * constants["g"] + constants["b"]
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)


def test_bits_are_cast_from_and_to_bools() -> None:
    """A byte that is not zero is true, as in NumPy's views; ONNX Runtime has no kernel."""
    casts = [node("BitCast", ["x"], ["y"], to=TensorProto.BOOL), node("BitCast", ["b"], ["z"], to=TensorProto.UINT8)]
    given: list[Value] = [("x", (2, 2), TensorProto.UINT8), ("b", (), TensorProto.BOOL)]
    built = model(casts, given, [("y", (2, 2), TensorProto.BOOL), ("z", (), TensorProto.UINT8)], {}, 26)
    values = np.array([[0, 1], [2, 255]], np.uint8)
    flags, byte = sartor.backend.run_model(built, [values, np.array(True)])
    np.testing.assert_array_equal(flags, values.view(bool))
    assert int(byte) == 1
