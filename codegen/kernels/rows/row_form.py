"""Analysis of layers that compute each row of a tensor from that row alone: softmax, normalization.

Their ops are elementwise, or fold a row to one number. A fold has to be complete before ops that use it can start. So
each op has a level: the number of folds that it depends on, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sartor.codegen.ir.layer import F32
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import row_major
from sartor.codegen.kernels.loops.epilogue import check_region, constant_of
from sartor.codegen.kernels.loops.view import view_of
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, copies, defining_op, indexing_maps, is_elementwise, loop_sizes
from sartor.codegen.mlir.snippet import tensor_parts

_WITHOUT_CODE = frozenset({"tensor.empty", "tensor.expand_shape", "tensor.collapse_shape", "arith.constant"})
_NEUTRAL = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -math.inf,
    "arith.maxnumf": -math.inf,
    "arith.minimumf": math.inf,
    "arith.minnumf": math.inf,
}
# A row is kept in f32.
_KEPT = frozenset({"f32", "f16", "bf16"})


@dataclass(frozen=True)
class Given:
    """An argument as rows read it.

    Attributes:
        memory: position of the argument.
        extents: extents of the loops over rows; loops are merged where their strides allow.
        steps: stride in elements along each.
        is_repeated: whether all elements of a row read the same element.
    """

    memory: int
    extents: tuple[Count, ...]
    steps: tuple[Count, ...]
    is_repeated: bool

    def offset(self, asm: Assembler, row: Index) -> Index:
        """Offset of a row in elements."""
        total: Index = 0
        for extent, step in zip(self.extents[:0:-1], self.steps[:0:-1], strict=True):
            row, inside = asm.divide(row, asm.size(extent))
            total = asm.add(total, asm.times(inside, asm.size(step)))
        return asm.add(total, asm.times(row, asm.size(self.steps[0]))) if self.steps else total


Operand: TypeAlias = Given | ir.Attribute | ir.Value


@dataclass(frozen=True)
class Fold:
    """A reduction of a row to one number.

    Attributes:
        combine: the op that combines two numbers.
        term: the value in the region that is combined.
        neutral: neutral element of ``combine``.
        initial: initial value of the reduction.
    """

    combine: ir.Operation
    term: ir.Value
    neutral: float
    initial: ir.Attribute


@dataclass(frozen=True)
class Step:
    """An op of the layer.

    Attributes:
        op: a ``linalg.generic``.
        operands: what it reads.
        is_wide: whether it computes a row of elements rather than one number.
        fold: how it reduces a row to one number; None if it is elementwise.
        level: number of folds that it depends on, one after the other.
    """

    op: ir.Operation
    operands: tuple[Operand, ...]
    is_wide: bool
    fold: Fold | None
    level: int

    @property
    def result(self) -> ir.Value:
        return self.op.results[0]


@dataclass(frozen=True)
class RowForm:
    """A layer as steps on rows.

    Attributes:
        rows: number of rows.
        length: elements of a row.
        steps: steps in order, by their results.
        result: result of the last step.
    """

    rows: Count
    length: int
    steps: dict[ir.Value, Step]
    result: ir.Value

    @property
    def count(self) -> int:
        """The number of rows.

        Raises:
            RejectionError: if it is known only when the layer runs.
        """
        return _known(self.rows)

    @property
    def kept(self) -> list[ir.Value]:
        """Rows that are used at a later level than they are computed at; those of other types are computed again."""
        used = [
            operand
            for step in self.steps.values()
            for operand in step.operands
            if operand in self.steps and self.steps[operand].is_wide and self.steps[operand].level < step.level
        ]
        return [value for value in dict.fromkeys(used) if _element(value) in _KEPT]


def row_form(function: ir.Operation) -> RowForm:
    """The steps of a layer's function.

    Raises:
        RejectionError: if it computes anything else than rows from themselves.
    """
    block = body_of(function)
    *ops, terminator = [view.operation for view in block.operations]
    if len(terminator.operands) != 1:
        raise RejectionError("the layer has several results")
    shape, _ = tensor_parts(terminator.operands[0])
    if len(shape) < 1 or math.prod(shape) <= math.prod(shape[:-1]):
        raise RejectionError("rows of the result have at most one element")
    reader = _Reader(list(block.arguments), math.prod(shape[:-1]), shape[-1])
    for op in ops:
        if op.name not in _WITHOUT_CODE and not (op.name == "linalg.generic" and copies(op)):
            reader.take(op)
    result = view_of(terminator.operands[0])
    if result.origin not in reader.steps or not reader.steps[result.origin].is_wide:
        raise RejectionError("the layer's result is not what its last op computes")
    if not _same_walk(shape, result.strides, row_major(shape)):
        raise RejectionError("the layer transposes its result")
    return RowForm(reader.rows, reader.length, reader.steps, result.origin)


def open_form(one: RowForm, other: RowForm, fit: Fit) -> RowForm:
    """The steps of a layer of any size, by those for the two sizes of ``fit``.

    Raises:
        RejectionError: if they differ in more than the number of rows, and in how rows are found.
    """
    if one.length != other.length:
        raise RejectionError("the length of a row is known only when it runs")
    pairs = [*zip(one.steps.values(), other.steps.values(), strict=True)]
    twins = {step.result: twin.result for step, twin in pairs}
    steps = {step.result: _open_step(step, twin, twins, fit) for step, twin in pairs}
    return replace(one, rows=fit.count(one.count, other.count), steps=steps)


def _open_step(one: Step, other: Step, twins: Mapping[ir.Value, ir.Value], fit: Fit) -> Step:
    described = [(step.op.name, step.is_wide, step.fold is None, step.level) for step in (one, other)]
    if described[0] != described[1]:
        raise RejectionError("rows are not computed alike for all sizes")
    operands = zip(one.operands, other.operands, strict=True)
    return replace(one, operands=tuple(_open_operand(*operand, twins, fit) for operand in operands))


def _open_operand(one: Operand, other: Operand, twins: Mapping[ir.Value, ir.Value], fit: Fit) -> Operand:
    if isinstance(one, Given) and isinstance(other, Given):
        if (one.memory, one.is_repeated) != (other.memory, other.is_repeated):
            raise RejectionError("rows are not read alike for all sizes")
        extents, steps = (
            tuple(fit.count(_known(first), _known(second)) for first, second in zip(*pair, strict=True))
            for pair in ((one.extents, other.extents), (one.steps, other.steps))
        )
        return replace(one, extents=extents, steps=steps)
    if isinstance(one, ir.Value) and twins.get(one) == other:
        return one
    if isinstance(one, ir.Attribute) and str(one) == str(other):
        return one
    raise RejectionError("rows are not computed alike for all sizes")


def _known(size: Count) -> int:
    if not isinstance(size, int):
        raise RejectionError(f"{size} is known only when the layer runs")
    return size


def _element(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


class _Reader:
    """Turns ops into steps, in order."""

    def __init__(self, arguments: Sequence[ir.Value], rows: int, length: int) -> None:
        self._arguments = list(arguments)
        self.rows = rows
        self.length = length
        self.steps: dict[ir.Value, Step] = {}

    def take(self, op: ir.Operation) -> None:
        """Add an op.

        Raises:
            RejectionError: if it is neither elementwise nor a fold of rows.
        """
        if op.name != "linalg.generic":
            raise RejectionError(f"{op.name} is neither elementwise nor a reduction of rows")
        extents = loop_sizes(op)
        is_wide = math.prod(extents) == self.rows * self.length and extents[-1:] == [self.length]
        if not is_wide and math.prod(extents) != self.rows:
            raise RejectionError("an op computes something other than rows")
        fold = None
        if is_elementwise(op):
            check_region(op)
        else:
            fold = _fold(op) if is_wide else None
            if fold is None:
                raise RejectionError("an op is neither elementwise nor a reduction of rows")
        operands = self._operands(op, extents, is_wide)
        level = max((self._level(operand) for operand in operands), default=0)
        self.steps[op.results[0]] = Step(op, operands, is_wide and fold is None, fold, level)

    def _level(self, operand: Operand) -> int:
        if operand not in self.steps:
            return 0
        step = self.steps[operand]
        return step.level + (step.fold is not None)

    def _operands(self, op: ir.Operation, extents: list[int], is_wide: bool) -> tuple[Operand, ...]:
        inputs = list(op.operands)[: len(op.operands) - len(op.results)]
        return tuple(
            self._operand(value, indexing, extents, is_wide)
            for value, indexing in zip(inputs, indexing_maps(op), strict=False)
        )

    def _operand(self, value: ir.Value, indexing: ir.AffineMap, extents: list[int], is_wide: bool) -> Operand:
        constant = _constant(value)
        if constant is not None:
            return constant
        view = view_of(value)
        steps = [0] * len(extents)
        for step, expression in zip(view.strides, indexing.results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                steps[expression.position] = step
        if view.origin in self.steps:
            self._check_inner(self.steps[view.origin], extents, steps, is_wide)
            return view.origin
        if view.origin not in self._arguments:
            raise RejectionError("an operand is neither an argument nor computed by rows")
        counted = len(extents) - is_wide
        if is_wide and steps[-1] not in (0, 1):
            raise RejectionError("elements of a row are not adjacent")
        walk = joined_loops(extents[:counted], steps[:counted])
        memory = self._arguments.index(view.origin)
        return Given(memory, *walk, is_repeated=not is_wide or steps[-1] == 0)

    def _check_inner(self, step: Step, extents: list[int], steps: list[int], is_wide: bool) -> None:
        """Check that an op reads the result of another step in its own row."""
        expected = row_major(tuple(extents))
        if not step.is_wide and is_wide:
            expected = (*row_major(tuple(extents[:-1])), 0)
        if (step.is_wide and not is_wide) or not _same_walk(extents, steps, expected):
            raise RejectionError("an op reads another row's elements")


def _constant(value: ir.Value) -> ir.Attribute | None:
    """The scalar of a constant, or that a constant or broadcast repeats; None for other values."""
    constant = constant_of(value)
    op = defining_op(value)
    if constant is None and op is not None and copies(op):
        return constant_of(op.operands[0])
    return constant


def _same_walk(extents: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether strides agree along all loops of more than one iteration."""
    return all(size == 1 or first == second for size, first, second in zip(extents, one, other, strict=True))


def joined_loops(extents: Sequence[int], steps: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and strides of loops, where adjacent loops with matching strides are merged."""
    loops: list[tuple[int, int]] = []
    for extent, step in zip(extents, steps, strict=True):
        if extent == 1:
            continue
        if loops and loops[-1][1] == step * extent:
            extent *= loops.pop()[0]
        loops.append((extent, step))
    return tuple(extent for extent, _ in loops), tuple(step for _, step in loops)


def _fold(op: ir.Operation) -> Fold | None:
    """How an op reduces its last loop; None if it is no such reduction."""
    kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    if ["reduction" in kind for kind in kinds] != [False] * (len(kinds) - 1) + [True]:
        return None
    inputs = len(op.operands) - len(op.results)
    kept = [result.position for result in indexing_maps(op)[inputs].results if isinstance(result, ir.AffineDimExpr)]
    block = body_of(op)
    combine = defining_op(list(block.operations)[-1].operation.operands[0])
    initial = _constant(op.operands[inputs])
    if combine is None or combine.name not in _NEUTRAL or initial is None or kept != list(range(len(kinds) - 1)):
        return None
    total = list(block.arguments)[inputs]
    terms = [operand for operand in combine.operands if operand != total]
    if len(terms) != 1 or _element(op.results[0]) != F32:
        return None
    return Fold(combine, terms[0], _NEUTRAL[combine.name], initial)
