"""Moves DequantizeLinear before operators that move elements: kernels take floats, and IREE has no unsigned types."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, optional_input
from sartor.onnx_model.operator_types.moving import MOVING
from sartor.tuning.calibration.quantised_range import QuantisedRange

MOVED_BEHIND = MOVING - {"Split"} | {"MaxPool"}
"""Operators with one result, of elements of their first operand (for Concat: of any operand)."""

_SHIFTS = {np.dtype(np.int8): 0, np.dtype(np.uint8): 128}
_IN_8_BITS: Mapping[int, type[np.int8] | type[np.uint8]] = {TensorProto.INT8: np.int8, TensorProto.UINT8: np.uint8}


def dequantise_early(model: ModelProto) -> tuple[str, ...]:
    """Put DequantizeLinear before operators that move elements; returns the names of these operators."""
    editor = GraphEditor(model.graph)
    moved: list[str] = []
    while name := _move_one(editor):
        moved.append(name)
    return tuple(moved)


def fixed_range(node: NodeProto, editor: GraphEditor) -> QuantisedRange | None:
    """The int8 range of a (de)quantising node's tensor; None unless it has one constant scale and 8-bit zero point."""
    scale, zero = editor.constant(node.input[1]), _zero_point(node, editor)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or zero.dtype not in _SHIFTS:
        return None
    if scale.dtype != np.float32 or not np.isfinite(scale.item()) or scale.item() <= 0:
        return None
    return QuantisedRange(float(scale.item()), int(zero.item()) - _SHIFTS[zero.dtype], "int8")


def _zero_point(node: NodeProto, editor: GraphEditor) -> Array | None:
    if name := optional_input(node, 2):
        return editor.constant(name)
    stored = editor.element_type(node.input[0]) if dequantises(node) else TensorProto.UINT8
    return np.zeros((), _IN_8_BITS[stored]) if stored in _IN_8_BITS else None


def dequantises(node: NodeProto) -> bool:
    """Whether a node is DequantizeLinear."""
    return node.op_type == "DequantizeLinear"


def _move_one(editor: GraphEditor) -> str:
    """Exchange one operator and the nodes that dequantise its result; returns its name, or an empty string."""
    for node in editor.nodes:
        if node.op_type not in MOVED_BEHIND or len(node.output) != 1 or editor.is_output(node.output[0]):
            continue
        readers = editor.consumers(node.output[0])
        ranges = {fixed_range(reader, editor) if dequantises(reader) else None for reader in readers}
        given = sum(editor.is_output(reader.output[0]) for reader in readers)
        if len(ranges) == 1 and None not in ranges and given <= 1:
            _exchange(editor, node, readers)
            return str(node.name)
    return ""


def _exchange(editor: GraphEditor, node: NodeProto, readers: list[NodeProto]) -> None:
    """Replace the readers, which dequantise with equal parameters, by nodes before ``node``."""
    first = next((reader for reader in readers if editor.is_output(reader.output[0])), readers[0])
    emit = Emitter(editor, first)
    moved = len(node.input) if node.op_type == "Concat" else 1
    inputs = [
        emit("DequantizeLinear", name, *first.input[1:], part="before") if index < moved else name
        for index, name in enumerate(node.input)
    ]
    mover = Emitter(editor, node)
    mover.copy(inputs, first.output[0])
    gone = {reader.output[0] for reader in readers}
    kept: list[NodeProto] = []
    for other in editor.nodes:
        if other.output[0] == node.output[0]:
            kept += [*emit.nodes, *mover.nodes]
        elif other.output[0] not in gone:
            kept.append(other)
    editor.set_nodes(kept)
    editor.redirect(dict.fromkeys(gone - {first.output[0]}, first.output[0]))
