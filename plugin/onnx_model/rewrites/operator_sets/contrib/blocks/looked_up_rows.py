"""Looks rows up in tables that ONNX Runtime stores in few bits, quantised block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.codegen.ir.encoding import unpacked
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import constant_part


def look_up(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """``GatherBlockQuantized(data, indices, scales, zero_points)``; blocks lie along the last axis."""
    found = attributes(node)
    data, scales = constant_part(node, editor, 0), constant_part(node, editor, 2)
    if data is None or scales is None or found.get("quantize_axis", 1) % data.ndim != data.ndim - 1:
        raise UnsupportedModelError(f"{describe_node(node)} quantises another axis than the last, which is unsupported")
    table = _Table.of(node, editor, data, scales)
    return table.looked_up() if table.may_stay else table.dequantised()


@dataclass(frozen=True)
class _Table:
    """A table of rows in blocks, from which rows are looked up.

    Attributes:
        emit: emits the nodes.
        codes: as stored, several in a byte if ``bits`` says so, [..., bytes].
        scales: [..., blocks].
        points: a zero point for each scale; None for ``origin``.
        origin: the zero point of all blocks without ``points``.
        bits: of a code if they are packed, else 8.
        block: elements of a block.
    """

    emit: Emitter
    codes: Array
    scales: Array
    points: Array | None
    origin: int
    bits: int
    block: int

    @classmethod
    def of(cls, node: NodeProto, editor: GraphEditor, data: Array, scales: Array) -> _Table:
        found, is_packed = attributes(node), editor.element_type(node.input[0]) == TensorProto.UINT8
        bits = found.get("bits", 4) if is_packed else 8
        points = constant_part(node, editor, 3)
        if points is not None and is_packed:
            points = unpacked(points, bits)[..., : scales.shape[-1]]
        origin = 1 << (bits - 1) if is_packed else 0
        return cls(Emitter(editor, node), data, scales, points, origin, bits, found.get("block_size", 128))

    @property
    def may_stay(self) -> bool:
        """Whether rows are dequantised when they have been looked up: packed ones, of whole blocks."""
        axis, width = attributes(self.emit.node).get("gather_axis", 0), self.codes.shape[-1] * 8 // self.bits
        is_whole = self.codes.ndim == 2 and width == self.scales.shape[-1] * self.block
        return self.codes.dtype == np.uint8 and self.bits < 8 and axis == 0 and is_whole

    def dequantised(self) -> list[NodeProto]:
        """Nodes that look rows up in a table of floats."""
        emit, size = self.emit, self.codes.shape[-1] * 8 // self.bits
        codes = unpacked(self.codes, self.bits).astype(np.float64)
        offset: Array = np.full((), float(self.origin))
        if self.points is not None:
            offset = np.repeat(self.points.astype(np.float64), self.block, axis=-1)[..., :size]
        factors = np.repeat(self.scales.astype(np.float64), self.block, axis=-1)[..., :size]
        table = emit.constant(((codes - offset) * factors).astype(self.scales.dtype), "table")
        axis = attributes(emit.node).get("gather_axis", 0)
        emit("Gather", table, emit.node.input[1], output=emit.node.output[0], axis=axis)
        return emit.nodes

    def looked_up(self) -> list[NodeProto]:
        """Nodes that look up rows of codes, scales and zero points, and dequantise them."""
        emit = self.emit
        number = emit("Cast", self._row(self.codes, "codes"), part="number", to=TensorProto.FLOAT)
        codes = emit("Concat", *self._parts(number), part="codes", axis=-1)
        blocks = emit("Reshape", codes, self._shape(self.block), part="blocks")
        offset = emit.constant(float(self.origin), "origin", np.float32)
        if self.points is not None:
            offset = self._of_blocks(emit("Cast", self._row(self.points, "points"), part="point", to=TensorProto.FLOAT))
        scale = emit("Cast", self._row(self.scales, "scales"), part="scale", to=TensorProto.FLOAT)
        centred = emit("Sub", blocks, offset, part="centred")
        values = emit("Mul", centred, self._of_blocks(scale), part="values")
        size = emit.constant([*self._rank, self.codes.shape[-1] * 8 // self.bits], "shape")
        rows = emit("Reshape", values, size, part="rows")
        kind = helper.np_dtype_to_tensor_dtype(self.scales.dtype)
        emit("Cast", rows, output=emit.node.output[0], to=kind)
        return emit.nodes

    @property
    def _rank(self) -> list[int]:
        """Dimensions of a result before the last, for Reshape, which takes zeros for those of its operand."""
        return [0] * (self.emit.editor.rank(self.emit.node.input[1]) or 0)

    def _shape(self, last: int) -> str:
        return self.emit.constant([*self._rank, self.scales.shape[-1], last], "shape")

    def _row(self, table: Array, name: str) -> str:
        return self.emit("Gather", self.emit.constant(table, name), self.emit.node.input[1], part=name, axis=0)

    def _of_blocks(self, values: str) -> str:
        return self.emit("Reshape", values, self._shape(1), part="of_blocks")

    def _parts(self, number: str) -> list[str]:
        """Codes of bytes that are given in f32, lowest bits first, each with a last dimension of one."""
        emit, parts = self.emit, []
        size = emit.constant(float(1 << self.bits), "size", np.float32)
        for _ in range(8 // self.bits):
            rest = emit("Floor", emit("Div", number, size, part="quotient"), part="rest")
            part = emit("Sub", number, emit("Mul", rest, size, part="higher"), part="code")
            parts.append(
                emit("Reshape", part, emit.constant([*self._rank, self.codes.shape[-1], 1], "shape"), part="split")
            )
            number = rest
        return parts
