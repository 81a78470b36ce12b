"""Dispatches that we partition into workgroups.

IREE slices operands in their own layout. A dispatch that is written out gives each workgroup its own panel of weights,
packed at compile time so that it is read front to back (Goto and van de Geijn, 2008, section 4.2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.packing import Reshape, Transpose
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.lowerings.dispatch_text import LOADS, STORE, Grid, Operand, dispatch_text
from sartor.codegen.lowerings.lowering_config import follower_config, root_config
from sartor.codegen.lowerings.slices import LoopTiles, Slice
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import (
    body_of,
    defining_op,
    indexing_maps,
    loop_sizes,
    nested,
    remap,
    source,
    used_values,
)
from sartor.codegen.mlir.rewriting.initial import simplify_initial
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

_BEFORE_OFFSETS = 2
"""Operands of a store in front of its offsets: the tile, and the tensor."""


@dataclass(frozen=True)
class WorkgroupTiling:
    """Tile sizes per dimension of the root's result, and per reduction loop.

    Attributes:
        workgroup: part of the result that one workgroup computes; each size divides the extent.
        register: part of that which is kept in registers; separate loops compute the rest at the edges.
        reduction: step of each reduction loop.
        pipeline: name of IREE's CPU pipeline.
    """

    workgroup: tuple[int, ...]
    register: tuple[int, ...]
    reduction: tuple[int, ...]
    pipeline: str

    def apply(self, rewrite: Rewrite) -> None:
        """Replace the root of a layer, its initial value and the ops after it by one dispatch.

        The root's first loops have to be the dimensions of its result. If its second operand is a weight, it is packed
        into panels along the last of these.

        Raises:
            RejectionError: if an op cannot be sliced.
        """
        with rewrite.module.context as context, ir.Location.unknown(context):
            simplify_initial(rewrite.root)
            _Dispatch(self, rewrite).write()

    def configure(self, op: ir.Operation, *, is_root: bool) -> None:
        """Tell IREE how to tile an op inside a workgroup."""
        if is_root:
            text = root_config(self.register, self.reduction, self.pipeline)
            op.attributes["compilation_info"] = ir.Attribute.parse(text)
        else:
            op.attributes["lowering_config"] = ir.Attribute.parse(follower_config(self.register))


class _Dispatch:
    """Emits the dispatch of one layer."""

    def __init__(self, tiling: WorkgroupTiling, rewrite: Rewrite) -> None:
        self._tiling = tiling
        self._rewrite = rewrite
        self._chain = rewrite.chain
        shape, element = tensor_parts(self._chain.result)
        self._grid = Grid(tuple(size // part for size, part in zip(shape, tiling.workgroup, strict=True)))
        self._moving = [dimension for dimension, count in enumerate(self._grid.counts) if count > 1]
        offsets = [(axis, part) if axis in self._moving else None for axis, part in enumerate(tiling.workgroup)]
        self._result = Operand(shape, element, Slice(tuple(offsets), tiling.workgroup))
        self._operands: dict[tuple[ir.Value, Slice], Operand] = {}
        self._slots: dict[tuple[ir.Operation, int], tuple[ir.Value, Slice]] = {}

    def write(self) -> None:
        for op in self._chain.ops:
            self._collect(op)
        self._pack()
        point = ir.InsertionPoint(_next(self._chain.ops[-1]))
        text = dispatch_text(list(self._operands.values()), self._result, self._grid)
        (result,) = inline(text, [value for value, _ in self._operands], point)
        self._fill(body_of(result.owner.operation))
        self._chain.result.replace_all_uses_with(result)
        for op in reversed(self._chain.ops):
            if not list(op.results[0].uses):
                op.erase()

    def _collect(self, op: ir.Operation) -> None:
        """Find the tensors that ``op`` reads from outside."""
        inside = {op.results[0] for op in self._chain.ops}
        tiles = self._tiles(op)
        for position, indexing_map in enumerate(indexing_maps(op)[:-1]):
            value = op.operands[position]
            if value in inside or not isinstance(value.type, ir.RankedTensorType) or _is_constant(value):
                continue
            part = tiles.slice_of(list(indexing_map.results))
            self._slots[op, position] = value, part
            self._operands[value, part] = Operand(*tensor_parts(value), part)

    def _tiles(self, op: ir.Operation) -> LoopTiles:
        extents, rank = loop_sizes(op), len(self._grid.counts)
        leading = ir.AffineMap.get(len(extents), 0, [ir.AffineDimExpr.get(loop) for loop in range(rank)])
        if indexing_maps(op)[-1] != leading:
            raise RejectionError("the result's dimensions are not the first loops")
        return LoopTiles((*self._tiling.workgroup, *extents[rank:]), frozenset(self._moving))

    def _pack(self) -> None:
        """Pack the root's weight into panels: the dimension of the last loop is split, and its outer part moved to the
        front."""
        key = self._slots.get((self._chain.root, 1))
        index = self._rewrite.weight_index(key[0]) if key else None
        if key is None or index is None:
            return
        weight, part = key
        last = len(self._grid.counts) - 1
        axes = [axis for axis, offset in enumerate(part.offsets) if offset is not None and offset[0] == last]
        if not axes:
            return
        (axis,) = axes
        shape, element = tensor_parts(weight)
        split = (*shape[:axis], self._grid.counts[last], part.sizes[axis], *shape[axis + 1 :])
        order = (axis, *(other for other in range(len(split)) if other != axis))
        packed = tuple(split[axis] for axis in order)
        offsets = tuple(None if other == axis else offset for other, offset in enumerate(part.offsets))
        self._operands[key] = Operand(packed, element, Slice(offsets, part.sizes), panel=last)
        self._rewrite.pack(index, (Reshape(split), Transpose(order)), tensor_type(packed, element))

    def _fill(self, block: ir.Block) -> None:
        """Clone the chain's ops, on tiles, between the loads and the store."""
        ops = [view.operation for view in block.operations]
        loads = [op.results[0] for op in ops if op.name == LOADS]
        parts = dict(zip(self._operands, loads, strict=True))
        store = next(op for op in ops if op.name == STORE)
        origins = dict(zip(self._moving, list(store.operands)[_BEFORE_OFFSETS:], strict=True))
        mapping: dict[ir.Value, ir.Value] = {}
        for op in self._chain.ops:
            clone = self._clone(op, mapping, ir.InsertionPoint(store))
            _move_indices(clone, origins)
            for position in range(len(op.operands) - 1):
                if (op, position) in self._slots:
                    clone.operands[position] = parts[self._slots[op, position]]
        store.operands[0] = mapping[self._chain.result]

    def _clone(self, op: ir.Operation, mapping: dict[ir.Value, ir.Value], point: ir.InsertionPoint) -> ir.Operation:
        for value in used_values(op):
            if value not in mapping and _is_constant(value):
                mapping[value] = source(value).clone(ip=point).results[0]
        tile = ir.Type.parse(tensor_type(self._tiling.workgroup, tensor_parts(op.results[0])[1]))
        clone = op.clone(ip=point)
        remap(clone, mapping)
        if op != self._chain.root:
            room = ir.Operation.create("tensor.empty", results=[tile], ip=ir.InsertionPoint(clone))
            clone.operands[len(clone.operands) - 1] = room.results[0]
        clone.results[0].set_type(tile)
        self._tiling.configure(clone, is_root=op == self._chain.root)
        mapping[op.results[0]] = clone.results[0]
        return clone


def _move_indices(op: ir.Operation, origins: Mapping[int, ir.Value]) -> None:
    """Let an op on a tile ask for its place in the whole result, as the mask of a triangle does.

    Args:
        op: the op; its first loops are the dimensions of the result.
        origins: first index of the tile along each dimension that workgroups partition.
    """
    for index in [inner for inner in nested(op) if inner.name == "linalg.index"]:
        origin = origins.get(ir.IntegerAttr(index.attributes["dim"]).value)
        if origin is not None:
            place = index.results[0]
            point = ir.InsertionPoint(_next(index))
            moved = ir.Operation.create("arith.addi", results=[place.type], operands=[place, origin], ip=point)
            place.replace_all_uses_except(moved.results[0], moved)


def _is_constant(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op.name == "arith.constant"


def _next(op: ir.Operation) -> ir.Operation:
    block = [view.operation for view in op.block.operations]
    return block[block.index(op) + 1]
