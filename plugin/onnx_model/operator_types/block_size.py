"""How many channels a block has in ONNX Runtime's layout for this processor."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SMALL_BLOCK, LARGE_BLOCK = 8, 16
"""With vectors of 256 bits, and others."""
_ERRORS_ONLY = 3


@cache
def block_size_here() -> int | None:
    """The size of a block, by what ONNX Runtime makes of a convolution; None if it lays none out in blocks here."""
    node = helper.make_node("Conv", ["image", "filter"], ["result"])
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 4, 4])
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, [1, SMALL_BLOCK, 4, 4])
    filters = numpy_helper.from_array(np.ones((SMALL_BLOCK, 3, 1, 1), np.float32), "filter")
    graph = helper.make_graph([node], "conv", [image], [result], [filters])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        graph = onnx.load_model(path).graph
    blocked = {name for node in graph.node if node.domain == "com.microsoft.nchwc" for name in node.input}
    return next((int(tensor.dims[0]) for tensor in graph.initializer if tensor.name in blocked), None)
