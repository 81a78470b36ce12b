"""Signals that are computed as images of one row."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from tests.plugin.onnx_model.builders import FLOAT, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

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
