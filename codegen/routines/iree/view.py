"""Transpositions that move nothing, because an image lies in memory as they would arrange it.

Networks put channels last in front of a head, of a product or of a line of text, and networks of other frameworks begin
with the reverse. Where the image is in NHWC, what is left is a reshape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.layouts import CHANNELS_LAST, NHWC, layouts_of
from sartor.codegen.ir.schema import Schema, physical_types, schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, copies, indexing_maps
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

Part: TypeAlias = tuple[int, int]
"""A part of a dimension: elements of memory from one step along it to the next, and the number of steps."""

Order: TypeAlias = list[list[Part]]
"""Where in memory a tensor's elements are: the parts of each dimension, outermost first."""

_KINDS = (LayerKind.FIXED, LayerKind.TOLERANT)
# Most layers are rejected by their text, which is cheaper than reading their ops.
_COMPUTING = (" arith.", " math.")
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


@dataclass(frozen=True)
class View:
    """A layer that only rearranges one tensor, where that is none of the bytes.

    Attributes:
        name: the algorithm in descriptors.
        reads: whether an image that it reads has its channels last.
        writes: the same of an image that it gives.
    """

    name: str
    reads: bool = False
    writes: bool = False

    @property
    def traits(self) -> Traits:
        return Traits("view", is_free=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind not in _KINDS or task.weights or len(task.inputs) != 1 or len(task.results) != 1:
            return Rejected("it does not rearrange a single tensor")
        if task.inputs[0].dtype != task.results[0].dtype:
            return Rejected("its result has another type than what it reads")
        if task.inputs[0].elements != task.results[0].elements or any(op in task.body for op in _COMPUTING):
            return Rejected("it does more than rearrange a tensor")
        if not (task.inputs[0].shape and task.results[0].shape and task.results[0].elements):
            return Rejected("it has a scalar, or no elements")
        source, result = self._schemas(task, target)
        turned = ((self.reads, source), (self.writes, result))
        if any(schema.layout != CHANNELS_LAST for is_last, schema in turned if is_last):
            return Rejected("there is no image whose channels could be last")
        if not _keeps_bytes(task, source, result):
            return Rejected("it moves elements of an image in this layout")
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        source, result = self._schemas(task, target)
        (before,), (after,) = physical_types(task.inputs, (source,)), physical_types(task.results, (result,))
        flat = TensorType((before.elements,), before.dtype)
        body = "\n".join(
            [
                f"util.func public @layer(%arg0: {before}) -> {after} {{",
                f"  %flat = tensor.collapse_shape %arg0 [{list(range(len(before.shape)))}] : {before} into {flat}",
                f"  %out = tensor.expand_shape %flat [{list(range(len(after.shape)))}] "
                f"output_shape {list(after.shape)} : {flat} into {after}",
                f"  util.return %out : {after}",
                "}",
            ]
        )
        return Implementation(body, (source,), (result,), ())

    def _schemas(self, task: Task, target: Target) -> tuple[Schema, Schema]:
        """Schemas of what is read and of the result."""
        inputs, results = (
            schemas_of(tensors, layouts_of(tensors, CHANNELS_LAST) if is_last else layouts_of(tensors), target.device)
            for tensors, is_last in ((task.inputs, self.reads), (task.results, self.writes))
        )
        return inputs[0], results[0]


def _keeps_bytes(task: Task, source: Schema, result: Schema) -> bool:
    """Whether a layer's result in one schema has the bytes of what it reads in another."""
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        order = _order_of(rewrite.function, _laid_out(task.inputs[0], source))
    if order is None:
        return False
    if result.layout == CHANNELS_LAST:
        order = [order[axis] for axis in NHWC.order]
    distance = 1
    for step, count in reversed([part for parts in order for part in parts if part[1] > 1]):
        if step != distance:
            return False
        distance *= count
    return True


def _laid_out(tensor: TensorType, schema: Schema) -> Order:
    """The order of a tensor whose channels may be last."""
    axes = NHWC.order if schema.layout == CHANNELS_LAST else tuple(range(len(tensor.shape)))
    steps: dict[int, int] = {}
    distance = 1
    for axis in reversed(axes):
        steps[axis] = distance
        distance *= tensor.shape[axis]
    return [[(steps[axis], size)] for axis, size in enumerate(tensor.shape)]


def _order_of(function: ir.Operation, given: Order) -> Order | None:
    """Where in memory the elements of a function's result are; None if it does more than rearrange its argument."""
    block = body_of(function)
    known: dict[ir.Value, Order] = {block.arguments[0]: given}
    *ops, end = [view.operation for view in block.operations]
    for op in ops:
        if op.name == "tensor.empty":
            continue
        before = known.get(op.operands[0]) if len(op.operands) else None
        after = None if before is None else _rearranged(op, before)
        if after is None:
            return None
        known[op.results[0]] = after
    return known.get(end.operands[0])


def _rearranged(op: ir.Operation, before: Order) -> Order | None:
    """The order of an op's result; None if it is neither a reshape along whole parts nor a transposition."""
    if op.name in _RESHAPES:
        groups = [
            [ir.IntegerAttr(number).value for number in ir.ArrayAttr(one)]
            for one in ir.ArrayAttr(op.attributes["reassociation"])
        ]
        if op.name == _RESHAPES[0]:
            return [[part for axis in group for part in before[axis]] for group in groups]
        shape, _ = tensor_parts(op.results[0])
        split = [_split(parts, [shape[axis] for axis in group]) for parts, group in zip(before, groups, strict=True)]
        return None if None in split else [parts for group in split if group is not None for parts in group]
    if not copies(op):
        return None
    read, _ = indexing_maps(op)
    if not read.is_permutation:
        return None
    places = [ir.AffineDimExpr(result).position for result in read.results]
    return [before[places.index(axis)] for axis in range(len(places))]


def _split(parts: Sequence[Part], sizes: Sequence[int]) -> Order | None:
    """The parts of a dimension that is split into some of these sizes; None if a boundary lies within a step."""
    left, split = _merged(parts), list[list[Part]]()
    for size in reversed(sizes):
        taken: list[Part] = []
        while size > 1:
            if not left:
                return None
            step, count = left.pop()
            inner = min(size, count)
            if count % inner or size % inner:
                return None
            taken.insert(0, (step, inner))
            if count > inner:
                left.append((step * inner, count // inner))
            size //= inner
        split.insert(0, taken)
    return split if all(count == 1 for _, count in left) else None


def _merged(parts: Sequence[Part]) -> list[Part]:
    """The same parts with neighbours made one where each step of the outer begins behind the last of the inner."""
    merged: list[Part] = []
    for step, count in parts:
        if merged and merged[-1][0] == step * count:
            merged[-1] = step, merged[-1][1] * count
        else:
            merged.append((step, count))
    return merged
