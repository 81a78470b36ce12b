"""Constants of float64, which IREE does not convert along with the values around them."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.tensor_data import to_array


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
