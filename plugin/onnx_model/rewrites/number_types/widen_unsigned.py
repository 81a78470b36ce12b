"""Rewrites operators on uint8 that IREE computes as if the values were int8, and casts that lose values."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

# Both types represent every value of uint8 exactly.
_WIDE = {
    "Clip": TensorProto.INT32,
    "Div": TensorProto.INT32,
    "MaxPool": TensorProto.FLOAT,
    "Mod": TensorProto.INT32,
    "TopK": TensorProto.INT32,
}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


@node_rewrite()
def widen_unsigned(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Insert casts around operators that IREE 3.13 imports with signed comparison or division for uint8.

    A cast from floats to uint8 becomes two, by int32: IREE casts to int8, where values above 127 are undefined. A cast
    from float64 to float16 becomes two, by float32: IREE's makes 0 of what is subnormal in float16.
    """
    if node.op_type == "Cast":
        return _cast(node, editor)
    wide = _WIDE.get(node.op_type)
    if wide is None or editor.element_type(node.input[0]) != TensorProto.UINT8:
        return None
    emit = Emitter(editor, node)
    operands = [_wide(emit, name, wide) for name in node.input]
    results = emit.many(node.op_type, *operands, outputs=("", *node.output[1:]), **attributes(node))
    _narrow(emit, results[0], wide)
    return emit.nodes


def _cast(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if attributes(node)["to"] == TensorProto.FLOAT16 and editor.element_type(node.input[0]) == TensorProto.DOUBLE:
        emit = Emitter(editor, node)
        emit.copy([emit("Cast", node.input[0], part="float", to=TensorProto.FLOAT)], node.output[0])
        return emit.nodes
    if attributes(node)["to"] == TensorProto.INT16 and editor.element_type(node.input[0]) != TensorProto.INT16:
        return _cast_to_short(node, editor)
    if attributes(node)["to"] != TensorProto.UINT8 or editor.element_type(node.input[0]) not in _FLOATS:
        return None
    emit = Emitter(editor, node)
    _narrow(emit, node.input[0], TensorProto.FLOAT)
    return emit.nodes


def _wide(emit: Emitter, name: str, wide: int) -> str:
    if not name or emit.editor.element_type(name) != TensorProto.UINT8:
        return name
    return emit("Cast", name, part="widen", to=wide)


def _narrow(emit: Emitter, value: str, wide: int) -> None:
    if wide == TensorProto.FLOAT:
        value = emit("Cast", value, part="integer", to=TensorProto.INT32)
    part = "" if emit.node.op_type == "Cast" else "narrow"
    emit("Cast", value, part=part, output=emit.node.output[0], to=TensorProto.UINT8)


def _cast_to_short(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The lowest 16 bits, read from a table: IREE 3.13 imports no Cast to int16."""
    emit = Emitter(editor, node)
    table = np.arange(2**16, dtype=np.uint16).view(np.int16)
    whole = emit("Cast", node.input[0], part="whole", to=TensorProto.INT32)
    index = emit("Mod", whole, emit.constant(2**16, "range", np.int32), part="wrap")
    emit("Gather", emit.constant(table, "shorts"), index, output=node.output[0], axis=0)
    return emit.nodes
