"""Prepared models that cannot be compiled: refused by node, with what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, MS, Value, model, node
from tests.plugin.onnx_model.conftest import Prepare

_X: list[Value] = [("x", (1, 1, 4, 4), FLOAT)]
_BOUNDS = {"a": np.full(1, 0, np.float32), "b": np.full(1, 1e12, np.float32), "c": np.full(1, 1, np.float32)}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (
            model([node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9])], _X, ["y"]),
            r"node 'maxpool' \(MaxPool\) computes a value of shape \[1, 1, -4, -4\].* give larger inputs with --shape",
        ),
        (
            model([node("AveragePool", ["x"], ["y"], kernel_shape=[5, 2], strides=[2, 2])], _X, ["y"]),
            r"node 'averagepool' \(AveragePool\) has a window of 5 elements over an input of 4 with its padding",
        ),
        (
            model(
                [node("Conv", ["x", "w"], ["y"], dilations=[1, 4], strides=[1, 5], pads=[0, 1, 0, 0])],
                _X,
                ["y"],
                {"w": np.ones((1, 1, 1, 3), np.float32)},
            ),
            r"node 'conv' \(Conv\) has a window of 9 elements over an input of 5 with its padding",
        ),
        (
            model([node("Resize", ["x", "", "s"], ["y"])], _X, ["y"], {"s": np.array([1, 1, -1, 1], np.float32)}),
            r"node 'resize' \(Resize\) resizes by the scales \[1.0, 1.0, -1.0, 1.0\], which must be positive",
        ),
        (
            model(
                [node("Range", ["a", "b", "c"], ["y"])],
                _X,
                ["y"],
                {name: value.reshape(()) for name, value in _BOUNDS.items()},
            ),
            r"node 'range' \(Range\) computes a value of 3999999983616 bytes, more than",
        ),
        (model([node("Range", ["a", "b", "c"], ["y"])], _X, ["y"], _BOUNDS), "node 'range'"),
        (
            model([node("ConstantFill", [], ["y"], shape=[2**33])], _X, ["y"], opset=7),
            r"node 'constantfill' \(ConstantFill\) fills the shape \[8589934592\], which is larger than",
        ),
        (
            model([node("UnfoldTensor", ["x"], ["y"], domain=MS, size=9)], _X, ["y"]),
            r"node 'unfoldtensor' .* takes windows of 9 elements of a dimension of 4",
        ),
        (
            model([node("MaxPool", ["x"], ["y"], kernel_shape=[2**30, 1], pads=[2**29, 0, 2**29, 0])], _X, ["y"]),
            r"node 'maxpool' \(MaxPool\) pads its input to 17179869248 bytes, more than the 17179869184",
        ),
        (
            model([node("MaxPool", ["x"], ["y"], kernel_shape=[1, 2**31 - 1], auto_pad="SAME_UPPER")], _X, ["y"]),
            r"node 'maxpool' \(MaxPool\) pads its input to 34359738400 bytes, more than",
        ),
        (
            model(
                [node("ScatterND", ["x", "i", "u"], ["y"])],
                _X,
                ["y"],
                {"i": np.zeros((1, 5), np.int64), "u": np.ones(1, np.float32)},
            ),
            r"node 'scatternd' \(ScatterND\) has indices of 5 numbers for a value of 4 dimensions",
        ),
        (
            model([node("DepthToSpace", ["x"], ["y"], blocksize=3)], [("x", (1, 4, 2, 2), FLOAT)], ["y"]),
            r"node 'depthtospace' \(DepthToSpace\) makes blocks of 3 x 3 of 4 channels, which that does not divide",
        ),
    ],
    ids=[
        "window",
        "window by steps",
        "dilated window",
        "scale",
        "range",
        "range of vectors",
        "fill",
        "unfold",
        "pads",
        "automatic pads",
        "indices",
        "blocks",
    ],
)
def test_refusal_names_the_node(built: ModelProto, message: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        prepare_quickly(built)


def test_dropout_in_training_is_refused_before_onnxslim_removes_it() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Dropout", ["r", "ratio", "training"], ["d"]),
        node("Relu", ["d"], ["y"], name="last"),
    ]
    built = model(nodes, _X, ["y"], {"ratio": np.float32(0.5), "training": np.bool_(True)})
    with pytest.raises(UnsupportedModelError, match=r"'dropout' \(Dropout\) draws"):
        prepare(built)
