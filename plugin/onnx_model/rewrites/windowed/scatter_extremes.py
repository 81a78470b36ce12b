"""Scatters that keep the larger or smaller value: by comparing each position with each index, or in wider types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite, opset, rewrite_nodes
from sartor.onnx_model.graphs.walk import describe_node

_OPERATORS = {"max": "Max", "min": "Min"}
_SIGNED: Mapping[int, int] = {
    TensorProto.BOOL: TensorProto.INT32,
    TensorProto.UINT8: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
    TensorProto.UINT32: TensorProto.INT64,
}
# Truth values have no extremes, and IREE fails on constants of bfloat16; these types contain them.
_COMPARED_IN: Mapping[int, int] = {TensorProto.BFLOAT16: TensorProto.FLOAT, TensorProto.BOOL: TensorProto.INT32}
# Pairs of an update and a position that are compared.
_MOST_PAIRS = 2**24


def compare_scattered(model: ModelProto) -> tuple[str, ...]:
    """Lower ``ScatterElements`` with the reductions max and min; returns the names of the nodes.

    IREE 3.13 has no lowering for them.
    """
    return rewrite_nodes(model, partial(_compared, version=opset(model)))


@node_rewrite("ScatterND")
def widen_scattered(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Let ``ScatterND`` with the reductions max and min compare numbers without sign, and truth, in types with one.

    IREE 3.13 compares them as if they had a sign.

    Raises:
        UnsupportedModelError: there is no wider type.
    """
    settings, element = attributes(node), editor.element_type(node.input[0]) if node.input else 0
    if settings.get("reduction", "none") not in _OPERATORS:
        return None
    if element == TensorProto.UINT64:
        raise UnsupportedModelError(f"{describe_node(node)} compares uint64; cast to int64 around it")
    if element not in _SIGNED:
        return None
    emit = Emitter(editor, node)
    data, updates = (emit("Cast", node.input[index], part="wide", to=_SIGNED[element]) for index in (0, 2))
    chosen = emit("ScatterND", data, node.input[1], updates, part="chosen", **settings)
    emit("Cast", chosen, output=node.output[0], to=element)
    return emit.nodes


def _compared(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """Each element is the largest, or smallest, of itself and the updates whose index is its position."""
    settings, operator = attributes(node), _OPERATORS.get(attributes(node).get("reduction", "none"))
    if node.op_type != "ScatterElements" or operator is None:
        return None
    data, indices = (editor.shape(name) for name in node.input[:2])
    if data is None or indices is None:
        return None
    axis = settings.get("axis", 0) % len(data)
    others = [index for index in range(len(data)) if index != axis]
    if math.prod(indices) * data[axis] > _MOST_PAIRS or any(data[index] < indices[index] for index in others):
        return None
    emit, size, element = Emitter(editor, node), data[axis], editor.element_type(node.input[0])
    wide = _COMPARED_IN.get(element)
    before, update = (emit("Cast", node.input[at], part="wide", to=wide) if wide else node.input[at] for at in (0, 2))
    index = _position(emit, size)
    # [..., updates, positions]: the dimension of updates is reduced.
    positions = np.arange(size, dtype=np.int64).reshape([-1 if place == axis else 1 for place in range(len(data))])
    behind = emit.constant([axis + 1], "behind")
    index, update = (emit("Unsqueeze", operand, behind, part="pair") for operand in (index, update))
    hit = emit("Equal", index, emit.constant(np.expand_dims(positions, axis), "positions"), part="hit")
    dtype = helper.tensor_dtype_to_np_dtype(wide) if wide else emit.dtype(node.input[0])
    nothing = emit.constant(_least(dtype, operator), "nothing")
    value = emit("Where", hit, update, nothing, part="chosen")
    value = emit.reduced(f"Reduce{operator}", value, [axis], version, part="best")
    missing = [data[index] - indices[index] if index in others else 0 for index in range(len(data))]
    if any(missing):
        pads = emit.constant([*[0] * len(data), *missing], "pads")
        value = emit("Pad", value, pads, nothing, part="whole")
    chosen = emit(operator, before, value, output="" if wide else node.output[0])
    if wide:
        emit("Cast", chosen, part="result", output=node.output[0], to=element)
    return emit.nodes


def _position(emit: Emitter, size: int) -> str:
    """The indices, counted from the start of a dimension of ``size``."""
    length, zero = emit.constant(size, "length", np.int64), emit.constant(0, "zero", np.int64)
    index = emit("Cast", emit.node.input[1], part="index", to=TensorProto.INT64)
    from_end = emit("Add", index, length, part="from_end")
    return emit("Where", emit("Less", index, zero, part="negative"), from_end, index, part="position")


def _least(dtype: np.dtype[Any], operator: str) -> Array:
    """The value that is never chosen."""
    if dtype.kind == "f":
        return np.asarray(-np.inf if operator == "Max" else np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(limits.min if operator == "Max" else limits.max, dtype)
