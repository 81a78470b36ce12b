"""Partition ops into layers: a root op, the pad that feeds it, and the ops that follow it without a branch.

The results of only one op of a group are used outside, and all ops of the group are its ancestors. A group takes in an
op only if the op's other operands do not depend on the root. So groups never depend on each other in a cycle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.encoding import ATTRIBUTE
from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import (
    Reads,
    body_of,
    defining_op,
    indexing_maps,
    is_elementwise,
    nested,
    source,
    used_values,
)
from sartor.codegen.subgraphs.grouped import GROUPED
from sartor.dialect_passes.constants import constant_ops, scalar_ops
from sartor.dialect_passes.follower_run import FollowerRun, UseGraph

_BOUNDARY = ("hal.tensor.import", "hal.tensor.barrier", "hal.tensor.export", "util.return")
_RESHAPES = frozenset({"tensor.expand_shape", "tensor.collapse_shape"})
# What lies between the op that decodes a weight and the product by it.
_OF_WEIGHT = frozenset({"tensor.collapse_shape", "tensor.extract_slice"})
_PADS = frozenset({"tensor.pad"})
_ROOT_PREFIXES = {
    "linalg.depthwise_conv": LayerKind.DEPTHWISE,
    "linalg.conv": LayerKind.CONVOLUTION,
    "linalg.pooling": LayerKind.POOLING,
    "scf.for": LayerKind.RECURRENCE,
}
_CONTRACTIONS = (
    "linalg.matmul",
    "linalg.batch_matmul",
    "linalg.matvec",
    "linalg.vecmat",
    "linalg.batch_vecmat",
)
_IMAGE_RANK = 4
_DOUBLE = "f64>"


@dataclass
class Group:
    """Ops that will form one layer, in program order.

    Attributes:
        kind: kind of the root.
        root: the op that the layer is named after.
        ops: members, including the root.
    """

    kind: LayerKind
    root: ir.Operation
    ops: list[ir.Operation]


def partition(function: ir.Operation, reads: Reads = used_values) -> list[Group]:
    """Split the body of the network function, constants aside, into groups in a valid execution order."""
    return _Partitioner(function, reads).run()


def root_kind(op: ir.Operation) -> LayerKind | None:
    """The kind of layer whose root is ``op``; None if an op of this kind is never a root."""
    for prefix, kind in _ROOT_PREFIXES.items():
        if op.name.startswith(prefix):
            return kind
    if op.name.startswith(_CONTRACTIONS) or _is_generic_contraction(op):
        return LayerKind.CONTRACTION
    return None


def _is_generic_contraction(op: ir.Operation) -> bool:
    """Whether an op is a ``linalg.generic`` that sums products of two inputs over at least one dimension."""
    if op.name != "linalg.generic" or len(op.operands) != 3:
        return False
    reductions = sum("reduction" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"]))
    body = [child.name for child in nested(op) if child != op]
    products = any(name in ("arith.mulf", "arith.muli") for name in body)
    permutations = all(indexing_map.is_projected_permutation for indexing_map in indexing_maps(op))
    return reductions > 0 and products and permutations and body[-2] in ("arith.addf", "arith.addi")


def _is_row_maximum(op: ir.Operation) -> bool:
    """Whether an op is the row maximum that begins a softmax along the last dimension."""
    if op.name != "linalg.generic":
        return False
    kinds = ["reduction" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    body = [child.name for child in nested(op) if child != op]
    return kinds[-1:] == [True] and sum(kinds) == 1 and "arith.maximumf" in body


def _rank(value: ir.Value) -> int:
    return ir.RankedTensorType(value.type).rank if isinstance(value.type, ir.RankedTensorType) else 0


class _Partitioner:
    """Assigns each op to a group, in program order."""

    def __init__(self, function: ir.Operation, reads: Reads) -> None:
        self._reads = reads
        constants = constant_ops(function, reads)
        self._scalars = scalar_ops(function) - constants
        cloned = constants | self._scalars
        body = [view.operation for view in body_of(function).operations]
        self._ops = [op for op in body if op not in cloned and op.name not in _BOUNDARY]
        self._order = {op: index for index, op in enumerate(self._ops)}
        self._kinds = {op: root_kind(op) for op in self._ops}
        self._conversions = {op for op in self._ops if _converts_doubles(op)}
        self._producers = {op: self._producers_of(op) for op in self._ops}
        self._users: dict[ir.Operation, list[ir.Operation | None]] = {op: [] for op in self._ops}
        for op in body:
            self._register(op)
        self._graph = UseGraph(self._order, self._producers, self._users)
        self._taken: dict[ir.Operation, Group] = {}

    def _producers_of(self, op: ir.Operation) -> list[ir.Operation]:
        """Ops whose tensors ``op`` reads, directly or through scalars."""
        owners = [source(value) for value in self._reads(op) if not isinstance(value.owner, ir.Block)]
        through = [producer for owner in owners if owner in self._scalars for producer in self._producers_of(owner)]
        return [owner for owner in owners if owner in self._order] + through

    def _register(self, op: ir.Operation) -> None:
        """Record who uses what; None is the world outside."""
        if op in self._order:
            for producer in self._producers[op]:
                self._users[producer].append(op)
        elif op.name in _BOUNDARY:
            for producer in self._producers_of(op):
                self._users[producer].append(None)

    def run(self) -> list[Group]:
        groups = [self._start(op) for op in self._ops if self._kinds[op] is not None]
        groups += [self._start(op) for op in self._ops if op not in self._taken]
        return self._sorted([group for group in groups if group.ops])

    def _start(self, root: ir.Operation) -> Group:
        kind = self._kinds[root]
        if root in self._taken:
            return Group(LayerKind.FIXED, root, [])
        group = Group(kind or self._companion_kind(root), root, [root])
        self._taken[root] = group
        if kind is not None:
            self._take_feeders(group)
        self._take_followers(group)
        group.ops.sort(key=self._order.__getitem__)
        return group

    def _companion_kind(self, op: ir.Operation) -> LayerKind:
        """The kind of a group without a root: ops on images tolerate other layouts, all others need ONNX's."""
        if _is_row_maximum(op):
            return LayerKind.FIXED
        image = any(_rank(value) == _IMAGE_RANK for value in [*self._reads(op), *op.results])
        reshape = op.name in _RESHAPES or op.name == "linalg.transpose"
        return LayerKind.TOLERANT if image and not reshape else LayerKind.FIXED

    def _take_feeders(self, group: Group) -> None:
        """Add ops that feed the root alone: pads of images, splits of channels into groups, reshapes that keep rows."""
        pending = list(self._producers[group.root])
        while pending:
            op = pending.pop()
            if self._may_feed(op, group) and op not in self._taken and len(self._users[op]) == 1:
                self._taken[op] = group
                group.ops.append(op)
                pending.extend(self._producers[op])

    def _may_feed(self, op: ir.Operation, group: Group) -> bool:
        """Whether a group may take in an op before its root."""
        if group.kind is LayerKind.CONTRACTION:
            return op.name in _RESHAPES or (_keeps_rows(op) and not _decodes_weight(group.root))
        if _is_grouped(group.root) and op.results[0] == group.root.operands[0]:
            return bool(op.name == "tensor.expand_shape")
        return op.name in _PADS and pads_around_images(op)

    def _take_followers(self, group: Group) -> None:
        """The longest run of followers after which only one op's results are used outside."""
        run, best = FollowerRun(self._graph, group.ops), len(group.ops)
        while (op := run.next()) is not None:
            if op in self._taken or not self._may_follow(op, group) or run.goes_around(op):
                run.refuse(op)
                continue
            run.join(op)
            if run.leaving <= 1:
                best = len(run.ops)
        for op in run.ops[len(group.ops) : best]:
            self._taken[op] = group
        group.ops = run.ops[:best]

    def _may_follow(self, op: ir.Operation, group: Group) -> bool:
        if self._kinds[op] is not None or op in self._conversions or group.root in self._conversions:
            return False
        if group.kind is LayerKind.FIXED:
            return True
        if group.kind is LayerKind.TOLERANT:
            return self._companion_kind(op) is LayerKind.TOLERANT and op.name != "tensor.pad" and not _enlarges(op)
        if group.kind is LayerKind.CONTRACTION and (op.name in _RESHAPES or _turns_batches(op, group.root)):
            return True
        if _is_grouped(group.root) and op.name == "tensor.collapse_shape":
            return bool(op.operands[0] == group.root.results[0])
        if group.kind is LayerKind.RECURRENCE:
            return False
        return is_elementwise(op) and _elements(op) == _elements(group.root)

    def _sorted(self, groups: list[Group]) -> list[Group]:
        """Sort groups by their last op, before which all that they depend on ends."""
        return sorted(groups, key=lambda group: max(self._order[op] for op in group.ops))


def _converts_doubles(op: ir.Operation) -> bool:
    """Whether an op converts float64 to or from another type: kernels compute what is before and behind it in that."""
    if op.name != "linalg.generic" or not op.results:
        return False
    return str(op.operands[0].type).endswith(_DOUBLE) != str(op.results[0].type).endswith(_DOUBLE)


def _is_grouped(op: ir.Operation) -> bool:
    """Whether an op is a grouped convolution, around which images are reshaped to groups of channels and back."""
    return bool(op.name == GROUPED)


def pads_around_images(op: ir.Operation) -> bool:
    """Whether a pad adds rows and columns alone: kernels leave these out, but compute no others than there are."""
    amounts = (ir.DenseI64ArrayAttr(op.attributes[name]) for name in ("static_low", "static_high"))
    return not any(amount for listed in amounts for amount in list(listed)[:2])


def _keeps_rows(op: ir.Operation) -> bool:
    """Whether an op is a transpose that keeps the last dimension, so that its operand can be read by rows instead."""
    if op.name != "linalg.transpose":
        return False
    order = [int(axis) for axis in ir.DenseI64ArrayAttr(op.attributes["permutation"])]
    return order[-1] == len(order) - 1


def _decodes_weight(root: ir.Operation) -> bool:
    """Whether a product is by a weight in blocks of integers, whose kernels read a row's numbers side by side."""
    op = defining_op(root.operands[1])
    while op is not None and op.name in _OF_WEIGHT:
        op = defining_op(op.operands[0])
    return op is not None and ATTRIBUTE in op.attributes


def _turns_batches(op: ir.Operation, root: ir.Operation) -> bool:
    """Whether an op is a transpose that keeps rows and the root's extents, so that the root can write transposed
    rows."""
    return _keeps_rows(op) and _extents(op) == _extents(root)


def _enlarges(op: ir.Operation) -> bool:
    """Whether an op reads elements repeatedly; the kernel that enlarges images reads an argument of its layer, so what
    is computed before is a layer of its own."""
    if op.name != "linalg.generic" or len(op.operands) != 1:
        return False
    read = [inner for inner in nested(op) if inner.name == "tensor.extract"]
    return any(_size(extract.operands[0]) < _elements(op) for extract in read)


def _extents(op: ir.Operation) -> list[int]:
    """Sizes of all dimensions but those of one element, sorted."""
    return sorted(size for size in ir.RankedTensorType(op.results[0].type).shape if size != 1)


def _elements(op: ir.Operation) -> int:
    return _size(op.results[0])


def _size(value: ir.Value) -> int:
    return math.prod(ir.RankedTensorType(value.type).shape)
