"""Looks rows up in tables that ONNX Runtime stores in few bits, quantised block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.codegen.ir.encoding import BlockEncoding, packed, unpacked
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import constant_part, joined_points

LOOK_UP = "GatherBlockQuantized"
"""The operator."""
_DOMAIN = "com.microsoft"
_BITS, _BLOCK = (2, 4, 8), 128
# Bits of a code, and what makes it one without a sign, of types other than packed bytes.
_TYPES: Mapping[int, tuple[int, int]] = {TensorProto.INT4: (4, 8), TensorProto.UINT4: (4, 0)}
_INTEGERS = frozenset({TensorProto.UINT8, *_TYPES})
_SCALES = (TensorProto.FLOAT, TensorProto.FLOAT16)


def look_up(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``GatherBlockQuantized(data, indices, scales, zero_points)``.

    Rows of integers in blocks along a row stay as they are; other tables are dequantised.
    """
    if is_encoded_look_up(node, editor):
        return None
    table = _Table.of(node, editor)
    return table.encoded() if table.has_rows else table.dequantised()


def is_encoded_look_up(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node looks up rows of a constant table in packed bytes, in blocks along a row."""
    data, _, scales, *_ = node.input
    points, of = optional_input(node, 3), encoding_of(node, editor)
    if editor.is_nested or not all(editor.is_constant(name) for name in (data, scales, points) if name):
        return False
    if editor.element_type(data) != TensorProto.UINT8 or editor.element_type(scales) not in _SCALES:
        return False
    if of is None or not of.columns * of.depth or editor.shape(scales) != (of.columns, of.blocks):
        return False
    return not points or editor.shape(points) == (of.columns, of.packed_points // of.columns)


def encoding_of(node: NodeProto, editor: GraphEditor) -> BlockEncoding | None:
    """The encoding of a table ``[columns, bytes]`` of packed codes, a column for each row that may be looked up; None
    if it has another shape, or blocks along another axis."""
    settings, shape = attributes(node), editor.shape(node.input[0])
    bits, block = settings.get("bits", 4), settings.get("block_size", _BLOCK)
    is_of_rows = settings.get("gather_axis", 0) % 2 == 0 and settings.get("quantize_axis", 1) % 2 == 1
    if shape is None or len(shape) != 2 or bits not in _BITS or not block or not is_of_rows:
        return None
    return BlockEncoding(bits, block, shape[1] * 8 // bits, shape[0])


@dataclass(frozen=True)
class _Table:
    """A table from which parts are looked up.

    Attributes:
        emit: emits the nodes.
        codes: integers without a sign, of the table's shape.
        scales: [..., blocks] along one axis.
        points: a zero point for each scale.
        bits: of a code.
    """

    emit: Emitter
    codes: Array
    scales: Array
    points: Array
    bits: int

    @classmethod
    def of(cls, node: NodeProto, editor: GraphEditor) -> _Table:
        """The table of a node.

        Raises:
            UnsupportedModelError: if it is not constant, has no integers, or parts whose sizes do not fit.
        """
        data, scales, points = (constant_part(node, editor, index) for index in (0, 2, 3))
        kind = editor.element_type(node.input[0])
        if data is None or scales is None or kind not in _INTEGERS:
            raise UnsupportedModelError(
                f"{describe_node(node)} looks up what is not integers of 2, 4 or 8 bits; quantise the table again"
            )
        bits, offset = _TYPES.get(kind, (int(attributes(node).get("bits", 4)), 0))
        if kind == TensorProto.UINT8:
            codes, origin = unpacked(data, bits), 1 << (bits - 1)
            points = None if points is None else unpacked(points, bits)[..., : scales.shape[-1]]
        else:
            codes, origin = (data.astype(np.int16) + offset).astype(np.uint8), offset
            points = None if points is None else (points.astype(np.int16) + offset).astype(np.uint8)
        points = np.full(scales.shape, origin, np.uint8) if points is None else points
        table = cls(Emitter(editor, node), codes, scales, points, bits)
        if points.shape != scales.shape or scales.shape != table._shape_of_scales:
            raise UnsupportedModelError(
                f"{describe_node(node)} has scales or zero points of another shape than {table._shape_of_scales}; "
                "quantise the table again"
            )
        return table

    @property
    def _quantised_axis(self) -> int:
        return int(attributes(self.emit.node).get("quantize_axis", 1)) % self.codes.ndim

    @property
    def _block(self) -> int:
        return int(attributes(self.emit.node).get("block_size", _BLOCK))

    @property
    def _shape_of_scales(self) -> tuple[int, ...]:
        axis, shape = self._quantised_axis, self.codes.shape
        return (*shape[:axis], -(-shape[axis] // self._block), *shape[axis + 1 :])

    @property
    def has_rows(self) -> bool:
        """Whether whole rows are looked up that fill bytes, in the main graph."""
        settings, editor = attributes(self.emit.node), self.emit.editor
        is_of_rows = self.codes.ndim == 2 and self._quantised_axis == 1 and settings.get("gather_axis", 0) % 2 == 0
        is_known = self.scales.dtype in (np.float32, np.float16) and not editor.is_nested and bool(self.codes.size)
        return is_of_rows and is_known and self.codes.shape[1] * self.bits % 8 == 0

    def encoded(self) -> list[NodeProto]:
        """A node that looks rows up in packed bytes."""
        of = BlockEncoding(self.bits, self._block, self.codes.shape[1], self.codes.shape[0])
        emit = self.emit
        parts = [emit.constant(packed(self.codes, self.bits), "codes"), emit.node.input[1]]
        parts.append(emit.constant(self.scales, "scales"))
        if (self.points != of.middle).any():
            parts.append(emit.constant(joined_points(self.points, of), "points"))
        sizes: dict[str, Any] = {"bits": self.bits, "block_size": self._block, "gather_axis": 0, "quantize_axis": 1}
        emit(LOOK_UP, *parts, output=emit.node.output[0], domain=_DOMAIN, **sizes)
        return emit.nodes

    def dequantised(self) -> list[NodeProto]:
        """Nodes that look up in a table of floats."""
        emit, axis = self.emit, self._quantised_axis
        size = self.codes.shape[axis]
        points, scales = (
            np.take(np.repeat(array.astype(np.float64), self._block, axis=axis), np.arange(size), axis=axis)
            for array in (self.points, self.scales)
        )
        table = emit.constant(((self.codes - points) * scales).astype(self.scales.dtype), "table")
        gathered = attributes(emit.node).get("gather_axis", 0)
        emit("Gather", table, emit.node.input[1], output=emit.node.output[0], axis=gathered)
        return emit.nodes
