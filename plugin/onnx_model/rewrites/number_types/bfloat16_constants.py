"""Constants of bfloat16, which IREE does not convert along with the values around them."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.tensor_data import to_array


def cast_bfloat16_constants(model: ModelProto) -> tuple[str, ...]:
    """Store bfloat16 constants in float32 and cast them; returns the names of the casts.

    IREE 3.13 computes bfloat16 in float32 on CPUs, and fails on constants: "'arith.constant' op failed to verify that
    all of {value, result} have same type".
    """
    editor = GraphEditor(model.graph)
    casts = []
    for tensor in [each for each in model.graph.initializer if each.data_type == TensorProto.BFLOAT16]:
        name, wide = tensor.name, editor.fresh(f"{tensor.name}/wide")
        tensor.CopyFrom(numpy_helper.from_array(to_array(tensor).astype(np.float32), wide))
        node = editor.fresh_node(f"{name}/cast")
        casts.append(helper.make_node("Cast", [wide], [name], name=node, to=TensorProto.BFLOAT16))
    if casts:
        editor.set_nodes([*casts, *editor.nodes])
    return tuple(cast.name for cast in casts)
