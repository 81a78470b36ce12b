"""A weight in blocks of small integers as constants of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto

from sartor.codegen.ir.encoding import BlockEncoding, packed, unpacked
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, optional_input
from sartor.onnx_model.graphs.walk import describe_node

_BFLOAT = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class BlockWeight:
    """The weight of a product.

    Attributes:
        encoding: how it is stored.
        codes: [N, blocks, bytes of a block].
        scales: [N, blocks].
        points: packed as the operator has them, in bytes, or [N, blocks] in the scales' type; None for the middle.
    """

    encoding: BlockEncoding
    codes: Array
    scales: Array
    points: Array | None

    @classmethod
    def of(
        cls, node: NodeProto, encoding: BlockEncoding, codes: Array, scales: Array, points: Array | None
    ) -> BlockWeight:
        """The weight of a node from its constants, of any shapes.

        Raises:
            UnsupportedModelError: if their sizes do not fit the encoding.
        """
        of = encoding
        _check_size(node, "weights", codes, of.codes.elements)
        _check_size(node, "scales", scales, of.columns * of.blocks)
        if points is not None:
            is_packed = points.dtype == np.uint8
            _check_size(node, "zero points", points, of.packed_points if is_packed else of.columns * of.blocks)
        if scales.dtype == _BFLOAT:
            # Later steps hold constants of this type in f32.
            scales, points = scales.astype(np.float32), _widened(points)
        return cls(of, codes.reshape(of.codes.shape), scales.reshape(of.columns, of.blocks), points)._in_whole_bytes()

    def _in_whole_bytes(self) -> BlockWeight:
        """The weight with 4 or 8 bits for a code where codes lie across bytes, which no kernel reads.

        Codes without zero points move with the middle, so that they need none.
        """
        narrow = self.encoding
        if not 8 % narrow.bits:
            return self
        wide = replace(narrow, bits=4 if narrow.bits < 4 else 8)
        codes, points = unpacked(self.codes, narrow.bits), split_points(self.points, narrow)
        if points is None:
            codes = codes + np.uint8(wide.middle - narrow.middle)
        elif points.dtype == np.uint8:
            points = joined_points(points, wide)
        return BlockWeight(wide, packed(codes, wide.bits).reshape(wide.codes.shape), self.scales, points)

    def with_scales_of(self, dtype: np.dtype[Any]) -> BlockWeight:
        """The weight with scales, and zero points that are not packed, of another type."""
        points = self.points
        if points is not None and points.dtype != np.uint8:
            points = points.astype(dtype)
        return replace(self, scales=self.scales.astype(dtype), points=points)

    def stored(self, emit: Emitter) -> list[str]:
        """Names of constants in the shapes that ONNX Runtime takes in any version."""
        parts = {"codes": self.codes, "scales": self.scales.reshape(-1)}
        if self.points is not None:
            parts["points"] = self.points.reshape(-1)
        return [emit.constant(array, name) for name, array in parts.items()]

    def decoded(self, groups: Array | None = None) -> Array:
        """The weight [K, N] in float64; ``groups`` has the block of each row if they are not in order."""
        points = split_points(self.points, self.encoding)
        if groups is None:
            return self.encoding.decoded(self.codes, self.scales, points)
        origin = np.full(self.scales.shape, float(self.encoding.middle)) if points is None else points
        values = (self._rows - origin.astype(np.float64)[:, groups]) * self.scales.astype(np.float64)[:, groups]
        return values.T

    @property
    def _rows(self) -> Array:
        """The codes of all rows of the matrix, [N, K]."""
        return unpacked(self.codes, self.encoding.bits).reshape(self.encoding.columns, -1)[:, : self.encoding.depth]

    def sorted_by(self, groups: Array) -> tuple[BlockWeight, Array, Array]:
        """The weight with its rows sorted by their groups, which begin with a block each.

        Args:
            groups: the number of the scales of each row.

        Returns:
            The weight; what row of this one each of its rows is; and whether it is one. The others fill blocks up.
        """
        of = self.encoding
        members = [np.flatnonzero(groups == group) for group in range(of.blocks)]
        counts = [-(-len(rows) // of.block) for rows in members]
        places = [
            np.pad(rows, (0, count * of.block - len(rows)), constant_values=-1)
            for rows, count in zip(members, counts, strict=True)
        ]
        order = np.concatenate(places)
        order = order[: np.flatnonzero(order >= 0)[-1] + 1]
        is_row, owners = order >= 0, np.repeat(np.arange(of.blocks), counts)
        new = replace(of, depth=len(order))
        rows = np.zeros((of.columns, new.blocks * of.block), np.uint8)
        rows[:, : new.depth] = np.where(is_row, self._rows[:, order], 0)
        points = split_points(self.points, of)
        if points is not None:
            points = points[:, owners] if points.dtype != np.uint8 else joined_points(points[:, owners], new)
        codes = packed(rows, of.bits).reshape(new.codes.shape)
        return BlockWeight(new, codes, self.scales[:, owners], points), np.maximum(order, 0), is_row


def _widened(points: Array | None) -> Array | None:
    return points.astype(np.float32) if points is not None and points.dtype == _BFLOAT else points


def split_points(points: Array | None, encoding: BlockEncoding) -> Array | None:
    """One zero point per column and block, [N, blocks], in uint8 if they were packed, each column in whole bytes."""
    if points is None:
        return None
    if points.dtype != np.uint8:
        return points.reshape(encoding.columns, encoding.blocks)
    return unpacked(points.reshape(encoding.columns, -1), encoding.bits)[:, : encoding.blocks]


def joined_points(points: Array, encoding: BlockEncoding) -> Array:
    """Zero points [N, blocks] packed, each column into whole bytes."""
    of = encoding
    filled = np.zeros((of.columns, -(-of.blocks * of.bits // 8) * 8 // of.bits), np.uint8)
    filled[:, : of.blocks] = points
    return packed(filled, of.bits)


def _check_size(node: NodeProto, what: str, array: Array, elements: int) -> None:
    if array.size != elements:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {array.size} elements of {what}; {elements} were expected from its "
            "sizes; quantise the model again"
        )


def constant_part(node: NodeProto, editor: GraphEditor, index: int) -> Array | None:
    """The values of an optional input, which must be constant."""
    name = optional_input(node, index)
    values = editor.constant(name) if name else None
    if name and values is None:
        raise UnsupportedModelError(
            f"{describe_node(node)} has packed weights that are not constant; export it with weights in floats"
        )
    return values
