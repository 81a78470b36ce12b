"""Compiles a long network in several functions, as IREE takes long for one long function.

Its passes run on each function: on several at a time, and some in time that grows faster than the function. Nothing is
fused across a border between two functions, so networks of usual length stay whole. From flow on, IREE lets what works
in place, as a sort, overwrite arguments of a private function that its caller reads later, or the module's inputs. So
functions are joined there if any of them works in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.mlir.iree_compiler import ir, run_passes
from sartor.codegen.mlir.operations import body_of, entry_function, is_static_tensor, nested, remap, symbol, used_values

# Of the operations without those that each part repeats; a convolution of ONNX becomes three or four.
_PART = 1000
_PART_NAME = "main_graph$part"
_ONCE = "inlining_policy"
# They take no time to compute.
_REPEATED = ("arith.constant", "tensor.empty", "util.global.load")
_LEADING = ("hal.tensor.import", "flow.tensor.transfer")
_BARRIER = "hal.tensor.barrier"
_UPDATE, _TIED = "flow.tensor.update", "tied_operands"
_NEW = (_UPDATE, "flow.tensor.splat", "flow.tensor.empty", "flow.dispatch")


@dataclass(frozen=True)
class _Body:
    """What a function does between its inputs and its results.

    Attributes:
        ops: its operations without repeated ones.
        reads: values that each of them reads.
        after: operations that follow them.
    """

    ops: Sequence[ir.Operation]
    reads: Sequence[Sequence[ir.Value]]
    after: Sequence[ir.Operation]

    @staticmethod
    def of(function: ir.Operation) -> _Body:
        """The body of a function; without operations if these are not between its inputs and a barrier."""
        ops = [view.operation for view in body_of(function).operations]
        begin = max((index for index, op in enumerate(ops, 1) if op.name in _LEADING), default=0)
        end = next((index for index, op in enumerate(ops) if op.name == _BARRIER), 0)
        inner = [op for op in ops[begin:end] if not _is_repeated(op)]
        return _Body(inner, [used_values(op) for op in inner], ops[end:])


def cut_function(module: ir.Module, size: int = _PART) -> None:
    """Move the operations of a long entry function into private functions, which it calls one after another.

    Args:
        module: linalg on tensors.
        size: most operations of a part. Functions of less than three parts stay whole, and those that cannot be cut.
    """
    function = entry_function(module)
    body = _Body.of(function)
    cuts = _cuts(body, size) if len(body.ops) >= 3 * size else []
    if not cuts:
        return
    with module.context, ir.Location.unknown(module.context):
        last = {value: index for index, values in enumerate(body.reads) for value in values}
        last |= {value: len(body.ops) for op in body.after for value in used_values(op)}
        results: dict[ir.Value, ir.Value] = {}
        for begin, end in itertools.pairwise([0, *cuts, len(body.ops)]):
            made = [value for op in body.ops[begin:end] for value in op.results]
            leaving = [value for value in made if last.get(value, -1) >= end]
            _move(_Body(body.ops[begin:end], body.reads[begin:end], ()), leaving, function, begin, results)
        for op in body.after:
            remap(op, results)


def join_overwriting_functions(module: ir.Module) -> None:
    """Undo ``cut_function``, at flow level, if a part works in place."""
    functions = [view.operation for view in module.body.operations if view.operation.name == "util.func"]
    parts = [op for op in functions if symbol(op).startswith(_PART_NAME)]
    if not any(_may_overwrite_an_argument(op) for part in parts for op in nested(part)):
        return
    for part in parts:
        del part.attributes[_ONCE]
    run_passes(module, "builtin.module(inline)")


def _may_overwrite_an_argument(op: ir.Operation) -> bool:
    """Whether a result may lie where an operand does that is not a new tensor, as what a pad is written into is."""
    return any(
        isinstance(value.owner, ir.Block) or value.owner.operation.name not in _NEW for value in _overwritten(op)
    )


def _overwritten(op: ir.Operation) -> list[ir.Value]:
    """Operands in whose place there may be results; without dynamic sizes they are numbered among all operands."""
    if op.name == _UPDATE:
        return [op.operands[0]]
    if _TIED not in op.attributes:
        return []
    numbers = [ir.IntegerAttr(number).value for number in ir.ArrayAttr(op.attributes[_TIED])]
    return [op.operands[number] for number in numbers if number >= 0]


def _is_repeated(op: ir.Operation) -> bool:
    return op.name in _REPEATED and not len(op.operands)


def _comes_from_repeated(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and _is_repeated(value.owner.operation)


def _cuts(body: _Body, size: int) -> list[int]:
    """Indices of operations to cut before: in the latter half of each part, where fewest tensors cross."""
    crossing, cuts, begin = _crossing(body), [], 0
    while len(body.ops) - begin > size:
        places = [index for index in range(begin + size, begin + size // 2, -1) if crossing[index] is not None]
        if not places:
            return []
        begin = min(places, key=lambda index: crossing[index] or 0)
        cuts.append(begin)
    return cuts


def _crossing(body: _Body) -> list[int | None]:
    """Number of values that operations from each on read from before it; None if one of them cannot be passed."""
    last = {value: index for index, values in enumerate(body.reads) for value in values}
    made = {value: index for index, op in enumerate(body.ops, 1) for value in op.results}
    passed, others = ([0] * (len(body.ops) + 1) for _ in range(2))
    for value, end in last.items():
        if not _comes_from_repeated(value):
            counts = passed if is_static_tensor(value) else others
            counts[made.get(value, 0)] += 1
            counts[end + 1] -= 1
    crossings = zip(itertools.accumulate(passed), itertools.accumulate(others), strict=True)
    return [None if other else count for count, other in crossings]


def _move(
    part: _Body, leaving: Sequence[ir.Value], caller: ir.Operation, number: int, results: dict[ir.Value, ir.Value]
) -> None:
    """Move operations into a function of their own, and call it where the first one was.

    Args:
        part: the operations.
        leaving: values that others read.
        caller: the function that they are in.
        number: makes the name unique.
        results: what calls of earlier parts return for values that were moved; extended by this one's.
    """
    own = {value for op in part.ops for value in op.results}
    given = dict.fromkeys(value for values in part.reads for value in values if value not in own)
    passed = [value for value in given if not _comes_from_repeated(value)]
    types = [value.type for value in leaving]
    function = _declared(f"{_PART_NAME}{number}", [value.type for value in passed], types, caller)
    block, names = body_of(function), {"callee": ir.FlatSymbolRefAttr.get(symbol(function))}
    end = block.operations[0].operation
    inside = dict(zip(passed, block.arguments, strict=True))
    for value in given:
        if value not in inside:
            inside[value] = value.owner.operation.clone(ip=ir.InsertionPoint(end)).operation.results[0]
    operands = [results.get(value, value) for value in passed]
    call = ir.Operation.create("util.call", types, operands, names, ip=ir.InsertionPoint(part.ops[0]))
    for op, values in zip(part.ops, part.reads, strict=True):
        op.move_before(end)
        if any(value in inside for value in values):
            remap(op, inside)
    ir.Operation.create("util.return", operands=leaving, ip=ir.InsertionPoint(end))
    end.erase()
    results.update(zip(leaving, call.results, strict=True))


def _declared(
    name: str, arguments: Sequence[ir.Type], results: Sequence[ir.Type], before: ir.Operation
) -> ir.Operation:
    """A private function without operations, which IREE must not inline."""
    parameters = ", ".join(f"%arg{index}: {argument}" for index, argument in enumerate(arguments))
    head = f"util.func private @{name}({parameters}) -> ({', '.join(map(str, results))})"
    module = ir.Module.parse(f"{head} attributes {{{_ONCE} = #util.inline.never}} {{ util.unreachable }}")
    return module.body.operations[0].clone(ip=ir.InsertionPoint(before)).operation
