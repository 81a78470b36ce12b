"""Rewrite one ``linalg.generic`` for another layout: dimensions are renamed, blocked ones split in two."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import ImageLayout
from sartor.codegen.ir.packing import Packing, Reshape, Transpose
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import indexing_maps, nested

_CHANNEL = 1
_FILTER_RANK = 3


@dataclass
class _Loops:
    """The iteration space of a generic while it is rewritten.

    Attributes:
        kinds: iterator type of each loop.
        inner: for a loop over channels that is split, the number of its new inner loop.
    """

    kinds: list[ir.Attribute]
    inner: dict[int, int]


class GenericRewriter:
    """Rewrites generics in place; collects the packings of filters in ``packings``.

    Args:
        layout: the images' new layout.
        images: values that change layout.
        weights: other weights with their ONNX types; of these only filters change layout.
    """

    def __init__(self, layout: ImageLayout, images: Set[ir.Value], weights: Mapping[ir.Value, TensorType]) -> None:
        self._layout = layout
        self._images = images
        self._weights = weights
        self.packings: dict[ir.Value, Packing] = {}

    def rewrite(self, op: ir.Operation) -> None:
        """Change maps, loops and loop indices of ``op``, but not the types of its operands.

        Raises:
            RejectionError: if the op depends on the old layout.
        """
        maps = [list(indexing_map.results) for indexing_map in indexing_maps(op)]
        kinds = list(ir.ArrayAttr(op.attributes["iterator_types"]))
        self._rewrite_body(op)
        loops = self._split(op, maps, kinds)
        rewritten = [self._results(value, results, loops) for value, results in zip(op.operands, maps, strict=True)]
        order = self._loop_order(rewritten[-1], loops)
        self._reorder(op, rewritten, loops, order)

    def _rewrite_body(self, op: ir.Operation) -> None:
        for child in nested(op):
            if child.name in ("linalg.index", "tensor.extract") and self._layout.block is not None:
                raise RejectionError("an op computes with the index of a blocked channel")
            if child.name == "tensor.extract" and child.operands[0] in self._images:
                indices = list(child.operands)[1:]
                for position, axis in enumerate(self._layout.order):
                    child.operands[1 + position] = indices[axis]

    def _split(self, op: ir.Operation, maps: list[list[ir.AffineExpr]], kinds: list[ir.Attribute]) -> _Loops:
        """Split every loop over channels where the layout is blocked."""
        loops = _Loops(kinds, {})
        if self._layout.block is None:
            return loops
        for value, results in zip(op.operands, maps, strict=True):
            if value not in self._images:
                continue
            if isinstance(results[_CHANNEL], ir.AffineConstantExpr):
                raise RejectionError("a broadcast over blocked channels")
            loop = _position(results[_CHANNEL])
            if loop not in loops.inner:
                loops.inner[loop] = len(loops.kinds)
                loops.kinds = [*loops.kinds, loops.kinds[loop]]
        return loops

    def _results(self, value: ir.Value, results: list[ir.AffineExpr], loops: _Loops) -> list[ir.AffineExpr]:
        if value in self._images:
            inner = [ir.AffineDimExpr.get(loops.inner[_position(results[_CHANNEL])])] if loops.inner else []
            return [results[axis] for axis in self._layout.order] + inner
        if value in self._weights and len(results) >= _FILTER_RANK and _reduces(loops):
            return self._pack_filter(value, results, loops)
        return self._pack_vector(value, results, loops)

    def _pack_filter(self, value: ir.Value, results: list[ir.AffineExpr], loops: _Loops) -> list[ir.AffineExpr]:
        """``[OC, IC, KH, KW]`` to ``[KH, KW, IC, OC]``, or blocked ``[OCo, ICo, KH, KW, ICi, OCi]``."""
        if loops.inner:
            return self._block_filter(value, results, loops)
        kernel = [axis for axis in range(len(results)) if axis >= len(results) - 2]
        channels = [axis for axis in range(len(results)) if axis not in kernel]
        order = tuple(kernel + channels[::-1])
        self._record(value, Packing((Transpose(order),)))
        return [results[axis] for axis in order]

    def _block_filter(self, value: ir.Value, results: list[ir.AffineExpr], loops: _Loops) -> list[ir.AffineExpr]:
        packing, outer, inner = self._blocked(value, results, loops)
        self._record(value, packing)
        return outer + inner[::-1]

    def _pack_vector(self, value: ir.Value, results: list[ir.AffineExpr], loops: _Loops) -> list[ir.AffineExpr]:
        """A bias or another small operand: unchanged, or split if its loop is split."""
        if not any(_position_or_none(result) in loops.inner for result in results):
            if value in self._weights:
                self._record(value, Packing())
            return results
        if value not in self._weights:
            raise RejectionError("an operand that is no image runs over blocked channels")
        return self._block_filter(value, results, loops)

    def _blocked(
        self, value: ir.Value, results: list[ir.AffineExpr], loops: _Loops
    ) -> tuple[Packing, list[ir.AffineExpr], list[ir.AffineExpr]]:
        """Split each blocked dimension of a weight and move the inner parts to the end, last one first."""
        block = self._layout.block or 1
        shape: list[int] = []
        outer_axes: list[int] = []
        inner_axes: list[int] = []
        inner: list[ir.AffineExpr] = []
        for size, result in zip(self._weights[value].shape, results, strict=True):
            outer_axes.append(len(shape))
            loop = _position_or_none(result)
            if loop in loops.inner and size > 1:
                if size % block:
                    raise RejectionError(f"{size} channels do not divide into blocks of {block}")
                inner_axes.append(len(shape) + 1)
                inner.append(ir.AffineDimExpr.get(loops.inner[loop]))
                shape += [size // block, block]
            else:
                shape.append(size)
        steps = (Reshape(tuple(shape)), Transpose(tuple(outer_axes + inner_axes[::-1])))
        return Packing(steps), list(results), inner

    def _record(self, value: ir.Value, packing: Packing) -> None:
        if self.packings.setdefault(value, packing) != packing:
            raise RejectionError("a weight is read in two layouts")

    def _loop_order(self, output: list[ir.AffineExpr], loops: _Loops) -> list[int]:
        """The new order of loops: the result's dimensions, then reductions over the kernel, then over channels."""
        order = [loop for loop in map(_position_or_none, output) if loop is not None]
        rest = [loop for loop in range(len(loops.kinds)) if loop not in order]
        split = set(loops.inner) | set(loops.inner.values())
        return order + sorted(rest, key=lambda loop: (loop in split, loop))

    def _reorder(self, op: ir.Operation, maps: list[list[ir.AffineExpr]], loops: _Loops, order: list[int]) -> None:
        count = len(loops.kinds)
        renamed = [ir.AffineDimExpr.get(order.index(loop)) for loop in range(count)]
        substitution = ir.AffineMap.get(count, 0, renamed)
        op.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [
                ir.AffineMapAttr.get(ir.AffineMap.get(count, 0, [result.compose(substitution) for result in results]))
                for results in maps
            ]
        )
        if "linalg.memoized_indexing_maps" in op.attributes:
            del op.attributes["linalg.memoized_indexing_maps"]
        op.attributes["iterator_types"] = ir.ArrayAttr.get([loops.kinds[loop] for loop in order])
        for child in nested(op):
            if child.name == "linalg.index":
                old = ir.IntegerAttr(child.attributes["dim"])
                child.attributes["dim"] = ir.IntegerAttr.get(old.type, order.index(old.value))


def _reduces(loops: _Loops) -> bool:
    return any("reduction" in str(kind) for kind in loops.kinds)


def _position(expr: ir.AffineExpr) -> int:
    """The loop that ``expr`` consists of.

    Raises:
        RejectionError: if it is no single loop.
    """
    if not isinstance(expr, ir.AffineDimExpr):
        raise RejectionError("a channel is computed from several loops")
    return int(expr.position)


def _position_or_none(expr: ir.AffineExpr) -> int | None:
    return int(expr.position) if isinstance(expr, ir.AffineDimExpr) else None
