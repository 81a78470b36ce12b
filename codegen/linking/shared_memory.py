"""Lets activations of networks of open sizes share memory where they are not needed at once.

IREE lays activations whose sizes are known only when they run one behind the other, and only those of one size share
memory. Working memory is filled with zeros in each call, and what it takes of the caches is lost to the rest. Here
those that are never needed at once lie in one bin, which is as large as the largest of them, whatever the sizes. The
largest come first, each in the first bin that is free when it is needed (Pisarchyk and Lee, "Efficient memory
management for deep neural net inference", 2020, section 4).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.codegen.mlir.iree_compiler import arith, ir, shared_context
from sartor.codegen.mlir.operations import defining_op, nested

PHASE = "stream"
"""The phase behind which memory is planned."""

_ALLOCATE, _EXECUTE, _FREE = "stream.resource.alloca", "stream.cmd.execute", "stream.resource.dealloca"
_DISPATCH, _ALIGN = "stream.cmd.dispatch", "util.align"
_SEGMENTS = "operandSegmentSizes"
_ALIGNMENT = 64
# Of a dispatch's access to a resource.
_WRITES = 2
_OPEN_TENSOR = re.compile(r"tensor<[\dx]*\?")
# Stands for each size of an input, where only the order of sizes counts.
_USUAL_SIZE = 256


class _UnknownLayoutError(Exception):
    """The memory is not laid out as expected, and stays as it is."""


@dataclass(frozen=True)
class _Access:
    """What a dispatch reads or writes.

    Attributes:
        op: the dispatch.
        number: of the resource, among those of the dispatch.
        time: commands at one time may run at once.
        is_new: whether it writes without reading.
    """

    op: ir.Operation
    number: int
    time: int
    is_new: bool

    def operand(self, segment: int) -> int:
        """Position of the resource, its size, the offset or the length, the segments 2 to 5 of a dispatch."""
        sizes = [*ir.DenseI32ArrayAttr(self.op.attributes[_SEGMENTS])]
        return self.number + sum(map(int, sizes[:segment]))


_RESOURCE, _SIZE, _OFFSET, _LENGTH = range(2, 6)


@dataclass
class _Life:
    """An activation from when it is written until it is last read.

    Attributes:
        size: of its memory.
        bytes: about how many these are with usual sizes.
        accesses: to it.
    """

    size: ir.Value
    bytes: int
    accesses: list[_Access] = field(default_factory=list)

    def meets(self, other: _Life) -> bool:
        """Whether both are needed at once."""
        return self._first <= other._last and other._first <= self._last

    @property
    def _first(self) -> int:
        return self.accesses[0].time

    @property
    def _last(self) -> int:
        return self.accesses[-1].time


def has_open_sizes(text: str) -> bool:
    """Whether a module at the flow level has tensors whose sizes are known only when it runs."""
    return _OPEN_TENSOR.search(text) is not None


def with_shared_memory(text: str) -> str:
    """The text of a module behind ``PHASE`` in which activations share memory."""
    with shared_context():
        module = ir.Module.parse(text)
        share_memory(module)
        return str(module)


def share_memory(module: ir.Module) -> None:
    """Let activations share memory.

    Args:
        module: behind ``PHASE``.
    """
    with module.context, ir.Location.unknown(module.context):
        for op in [op for op in nested(module.operation) if op.name == _ALLOCATE]:
            try:
                _share(op)
            except _UnknownLayoutError:
                continue


def _share(allocate: ir.Operation) -> None:
    """Lay out one block of memory anew, if only dispatches of one list of commands use it.

    Raises:
        _UnknownLayoutError: if it stays as it is.
    """
    memory, size = allocate.results[0], allocate.operands[0]
    users = {use.owner.operation.name: use.owner.operation for use in memory.uses}
    if _bytes(size, {}) is None or {*users} != {_EXECUTE, _FREE} or len([*memory.uses]) != len(users):
        raise _UnknownLayoutError
    execute = users[_EXECUTE]
    number = [*execute.operands].index(memory)
    accesses = [*_accesses(execute, execute.regions[0].blocks[0].arguments[number])]
    with ir.InsertionPoint(allocate):
        bins = _bins(_lives(accesses))
        total = _place(bins)
    allocate.operands[0] = total
    users[_FREE].operands[1] = total
    execute.operands[ir.DenseI32ArrayAttr(execute.attributes[_SEGMENTS])[0] + number] = total
    for access in accesses:
        access.op.operands[access.operand(_SIZE)] = total


def _accesses(execute: ir.Operation, memory: ir.Value) -> Iterator[_Access]:
    """What dispatches read and write of a memory, in order.

    Raises:
        _UnknownLayoutError: if something other than a dispatch does.
    """
    for time, view in enumerate(execute.regions[0].blocks[0].operations):
        for op in nested(view.operation):
            if memory not in [*op.operands]:
                continue
            if op.name != _DISPATCH:
                raise _UnknownLayoutError
            kinds = [ir.IntegerAttr(kind).value for kind in ir.ArrayAttr(op.attributes["resource_accesses"])]
            for number, kind in enumerate(kinds):
                access = _Access(op, number, time, kind == _WRITES)
                if op.operands[access.operand(_RESOURCE)] == memory:
                    yield access


def _lives(accesses: Sequence[_Access]) -> list[_Life]:
    """The activations that lie in a memory, each of which is what one or several of its parts hold for some time.

    Raises:
        _UnknownLayoutError: if parts may overlap.
    """
    parts: dict[ir.Value, list[_Access]] = {}
    for access in accesses:
        parts.setdefault(access.op.operands[access.operand(_OFFSET)], []).append(access)
    sizes = _sizes(parts)
    known: dict[ir.Value, int | None] = {}
    lives = []
    for offset, of_part in parts.items():
        times = [access.time for access in of_part]
        for index, access in enumerate(of_part):
            if not index or (access.is_new and times.count(access.time) == 1):
                lives.append(_Life(sizes[offset], _bytes(sizes[offset], known) or 0))
            lives[-1].accesses.append(access)
    return lives


def _sizes(parts: Mapping[ir.Value, Sequence[_Access]]) -> dict[ir.Value, ir.Value]:
    """The size of each part of a memory, given its offset.

    Raises:
        _UnknownLayoutError: unless each is accessed as a whole, and begins where another ends.
    """
    sizes, ends = {}, {}
    for offset, accesses in parts.items():
        lengths = {access.op.operands[access.operand(_LENGTH)] for access in accesses}
        if len(lengths) > 1:
            raise _UnknownLayoutError
        sizes[offset] = lengths.pop()
        ends[offset] = [(offset, size) for size in (sizes[offset], *_aligned(sizes[offset]))]
    following = {offset: before for before, listed in ends.items() for offset in parts if _is_end(offset, listed)}
    if len(following) != len(parts) - 1 or len({*following.values()}) != len(following):
        raise _UnknownLayoutError
    return sizes


def _aligned(size: ir.Value) -> list[ir.Value]:
    """Where a size is rounded up to a multiple."""
    users = [use.owner.operation for use in size.uses]
    return [op.results[0] for op in users if op.name == _ALIGN and op.operands[0] == size]


def _is_end(offset: ir.Value, ends: Sequence[tuple[ir.Value, ir.Value]]) -> bool:
    """Whether an offset is one of some sums of another offset and a size."""
    op = defining_op(offset)
    terms = [*op.operands] if op is not None and op.name == "arith.addi" else []
    return any(terms == [begin, size] or (_constant(begin) == 0 and offset == size) for begin, size in ends)


def _bins(lives: Sequence[_Life]) -> list[list[_Life]]:
    """Activations that share memory, together."""
    bins: list[list[_Life]] = []
    for life in sorted(lives, key=lambda life: -life.bytes):
        free = (own for own in bins if not any(map(life.meets, own)))
        shared = next(free, None)
        if shared is None:
            bins.append(shared := [])
        shared.append(life)
    return bins


def _place(bins: Sequence[Sequence[_Life]]) -> ir.Value:
    """Have each access use its bin, and return the size of all."""
    index = ir.IndexType.get()
    alignment, offset = arith.constant(index, _ALIGNMENT), arith.constant(index, 0)
    for lives in bins:
        size: ir.Value | None = None
        for own in dict.fromkeys(life.size for life in lives):
            size = own if size is None else arith.maxui(size, own)
        for access in (access for life in lives for access in life.accesses):
            access.op.operands[access.operand(_OFFSET)] = offset
        aligned = ir.Operation.create(_ALIGN, results=[index], operands=[size, alignment]).results[0]
        offset = arith.addi(offset, aligned)
    return offset


def _bytes(size: ir.Value, known: dict[ir.Value, int | None]) -> int | None:
    """About what a size is that is known only when the module runs; None for a constant, or one that nothing tells."""
    return None if _constant(size) is not None else _usual(size, known)


def _usual(value: ir.Value, known: dict[ir.Value, int | None]) -> int | None:
    """What an index is where each size of an input is the usual one."""
    if value not in known:
        op = defining_op(value)
        known[value] = None if op is None else _result(op, [_usual(operand, known) for operand in op.operands])
    return known[value]


def _result(op: ir.Operation, operands: Sequence[int | None]) -> int | None:
    if op.name == "arith.constant":
        return _constant(op.results[0])
    if op.name == "hal.buffer_view.dim":
        return _USUAL_SIZE
    numbers = [number for number in operands if number is not None]
    if op.name not in _RESULTS or len(numbers) < len(operands):
        return None
    return _RESULTS[op.name](*numbers)


_RESULTS: Mapping[str, Callable[..., int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divui": lambda number, divisor: number // max(1, divisor),
    "arith.ceildivui": lambda number, divisor: -(-number // max(1, divisor)),
    "arith.remui": lambda number, divisor: number % max(1, divisor),
    "arith.maxui": max,
    "arith.minui": min,
    _ALIGN: lambda number, alignment: -(-number // alignment) * alignment,
    "util.optimization_barrier": lambda number: number,
}


def _constant(value: ir.Value) -> int | None:
    op = defining_op(value)
    return ir.IntegerAttr(op.attributes["value"]).value if op is not None and op.name == "arith.constant" else None
