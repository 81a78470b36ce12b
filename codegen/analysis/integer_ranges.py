"""Which values a layer's integer arguments may have: indices must lie within what they index, divisors must not be 0.

The ranges follow from the layer's code: arguments are tracked, as spans, to the ops that use them as indices. So a
layer can be tested on random indices, which shows whether it reads the right rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.codegen.analysis.indexing import MAPPED, before_bounds, column_of, mapped_extents, scalar_indices
from sartor.codegen.analysis.spans import Span, computed, constant, union, unknown, width
from sartor.codegen.ir.layer import PLAIN, Task
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, loop_sizes, nested

_INDEX_TYPES = ("i64", "i32")
_INTEGER_TYPES = ("i64", "i32", "i16", "i8", "i1")
_MOVING = ("tensor.cast", "tensor.collapse_shape", "tensor.expand_shape", "tensor.extract", "tensor.extract_slice")
_SHIFTING = ("arith.shli", "arith.shrsi", "arith.shrui")
_DIVIDING = ("arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi", "arith.remsi", "arith.remui")


def integer_ranges(task: Task) -> tuple[range | None, ...]:
    """The range of each activation, then of each weight; None for floats, and for integers that may have any value.

    Empty for a task without arguments that could be indices. Ranges are widened in turn, each as far as those before it
    allow. If none can be derived it is ``range(1)``, the 0 alone.
    """
    types = [tensor.dtype for tensor in (*task.inputs, *task.weights)]
    if not any(kind in _INDEX_TYPES for kind in types):
        return ()
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(task.body)
        return _Widening(module.body.operations[0].operation, types).run()


class _Widening:
    """Widens the range of one argument after the other."""

    def __init__(self, function: ir.Operation, types: Sequence[str]) -> None:
        self._function = function
        self._types = types
        self._ranges = {index: range(1) for index, kind in enumerate(types) if kind in _INTEGER_TYPES}

    def run(self) -> tuple[range | None, ...]:
        broken = self._walk(self._ranges).broken
        for index in sorted(broken):
            if index not in self._walk({**self._ranges, index: range(1, 2)}).broken:
                self._ranges[index] = range(1, 2)
        # Flags and small numbers come last: they may choose between indices.
        for index in sorted(self._ranges, key=lambda place: (self._types[place] not in _INDEX_TYPES, place)):
            self._ranges[index] = self._widest(index)
        return tuple(self._needed(index) for index in range(len(self._types)))

    def _widest(self, index: int) -> range:
        """Find the widest range by bisection: every part of a valid range is valid."""
        start, walk = self._ranges[index].start, self._walk(self._ranges)
        if index in walk.broken:
            return self._ranges[index]
        low, high = self._ranges[index].stop, max(walk.extents.get(index, self._most(index)), start + 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self._walk({**self._ranges, index: range(start, middle)}).broken <= walk.broken:
                low = middle
            else:
                high = middle - 1
        return range(start, low)

    def _most(self, index: int) -> int:
        return 2 if self._types[index] == "i1" else PLAIN

    def _needed(self, index: int) -> range | None:
        """The range of an argument, or None if it is the default."""
        known_range = self._ranges.get(index)
        if self._types[index] not in _INDEX_TYPES and known_range == range(self._most(index)):
            return None
        return known_range

    def _walk(self, ranges: Mapping[int, range]) -> _Walk:
        walk = _Walk()
        for index, argument in enumerate(body_of(self._function).arguments):
            given = ranges.get(index)
            walk.spans[argument] = Span((given[0], given[-1]), frozenset({index})) if given else Span(None)
        walk.block(body_of(self._function))
        return walk


@dataclass
class _Walk:
    """Spans of all values for given spans of the arguments.

    Attributes:
        spans: by value.
        broken: arguments that may make the layer read outside of a tensor, divide by 0, shift too far, or fail a check.
        extents: size of the largest dimension that an argument indexes.
    """

    spans: dict[ir.Value, Span] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    extents: dict[int, int] = field(default_factory=dict)

    def block(self, block: ir.Block) -> None:
        for view in block.operations:
            self._op(view.operation)

    def _op(self, op: ir.Operation) -> None:
        given = [self._of(value) for value in op.operands]
        for index, size in _indices(op):
            self._within(self._of(index), size)
        if op.name in _DIVIDING:
            self._check(given[1], given[1].within(1, 2**63))
        elif op.name in _SHIFTING:
            self._check(given[1], given[1].within(0, width(op.results[0]) - 1))
        elif op.name == "cf.assert":
            self._check(given[0], given[0].within(1, 1))
        for value, span in zip(op.results, self._results(op, given), strict=True):
            self.spans[value] = span

    def _of(self, value: ir.Value) -> Span:
        return self.spans.get(value, Span(None))

    def _within(self, index: Span, size: int) -> None:
        for root in index.roots:
            self.extents[root] = max(self.extents.get(root, 0), size)
        self._check(index, index.within(0, size - 1))

    def _check(self, span: Span, holds: bool) -> None:
        if not holds:
            self.broken |= span.roots

    def _results(self, op: ir.Operation, given: Sequence[Span]) -> list[Span]:
        if op.name == "linalg.generic":
            return self._generic(op, given)
        if op.regions and op.name != "linalg.fill":
            return self._opaque(op, given)
        return [_result(op, given)] * len(op.results)

    def _generic(self, op: ir.Operation, given: Sequence[Span]) -> list[Span]:
        """Spans of what the body yields; running results of a reduction count as unknown."""
        body = body_of(op)
        reduced = any("reduction" in str(iterator) for iterator in ir.ArrayAttr(op.attributes["iterator_types"]))
        for index, (argument, span) in enumerate(zip(body.arguments, given, strict=True)):
            is_running = reduced and index >= len(given) - len(op.results)
            self.spans[argument] = unknown(given) if is_running else span
        sizes = loop_sizes(op)
        for child in nested(op):
            if child.name == "linalg.index":
                size = sizes[ir.IntegerAttr(child.attributes["dim"]).value]
                self.spans[child.results[0]] = Span((0, size - 1)) if size else Span(None)
        self.block(body)
        return [self._of(value) for value in body.operations[-1].operation.operands]

    def _opaque(self, op: ir.Operation, given: Sequence[Span]) -> list[Span]:
        """Walk an op whose body runs on unknown values."""
        for region in op.regions:
            for block in region.blocks:
                self.spans.update((argument, unknown(given)) for argument in block.arguments)
                self.block(block)
        return [unknown(given)] * len(op.results)


def _result(op: ir.Operation, given: Sequence[Span]) -> Span:
    if op.name == "arith.constant":
        return constant(op.attributes["value"])
    if op.name in _MOVING:
        # Further operands are indices.
        return Span(given[0].bounds, unknown(given).roots)
    if op.name == "tensor.concat":
        return union(given)
    if op.name == "tensor.insert_slice":
        return union(given[:2])
    return given[0] if op.name == "linalg.fill" else computed(op, given)


def _indices(op: ir.Operation) -> Iterator[tuple[ir.Value, int]]:
    """Values that an op uses as indices, each with the extent of the dimension that it indexes.

    What keeps an index within its dimension is looked past: every row can be told from the others by valid ones alone.
    """
    for position, extent in scalar_indices(op):
        yield before_bounds(op.operands[position]), extent
    if op.name in MAPPED:
        table = before_bounds(op.operands[1])
        for column, extent in enumerate(mapped_extents(op)):
            yield before_bounds(column_of(table, column)), extent
