"""Constants of bfloat16 and float64, which IREE does not convert along with the values around them."""

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
    for tensor in [
        initializer for initializer in model.graph.initializer if initializer.data_type == TensorProto.BFLOAT16
    ]:
        name, wide = tensor.name, editor.fresh(f"{tensor.name}/wide")
        tensor.CopyFrom(numpy_helper.from_array(to_array(tensor).astype(np.float32), wide))
        node = editor.fresh_node(f"{name}/cast")
        casts.append(helper.make_node("Cast", [wide], [name], name=node, to=TensorProto.BFLOAT16))
    if casts:
        editor.set_nodes([*casts, *editor.nodes])
    return tuple(cast.name for cast in casts)


def with_narrow_doubles(model: ModelProto) -> ModelProto:
    """The model with its constants of float64 as casts of constants of float32; itself if it has none.

    IREE computes float64 in float32 by default, but keeps the type of weights that lie outside the module, whose bytes
    it then takes for those of float32.
    """
    if all(tensor.data_type != TensorProto.DOUBLE for tensor in model.graph.initializer):
        return model
    narrow = ModelProto()
    narrow.CopyFrom(model)
    editor, casts = GraphEditor(narrow.graph), []
    for tensor in narrow.graph.initializer:
        if tensor.data_type == TensorProto.DOUBLE:
            name, stored = tensor.name, editor.fresh(f"{tensor.name}/narrow")
            with np.errstate(over="ignore"):
                tensor.CopyFrom(numpy_helper.from_array(to_array(tensor).astype(np.float32), stored))
            node = editor.fresh_node(f"{name}/cast")
            casts.append(helper.make_node("Cast", [stored], [name], name=node, to=TensorProto.DOUBLE))
    editor.set_nodes([*casts, *editor.nodes])
    return narrow
