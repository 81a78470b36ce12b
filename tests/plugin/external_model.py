"""A small convolution whose weights lie beside the model's file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = "w.bin"


def write_convolution(path: Path, *, batch: int | str = 1) -> None:
    """Write a convolution and its relu, of an image ``x`` of 3x8x8; the weights go to ``WEIGHTS`` in the folder."""
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    image, output = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [batch, 3, 8, 8]), ("y", [batch, 4, 8, 8]))
    )
    graph = helper.make_graph(nodes, "g", [image], [output], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=True, location=WEIGHTS, size_threshold=0)
