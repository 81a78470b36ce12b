"""Keeps indices that are data within what they index.

To ONNX an index outside a table is an error. IREE 3.13 drops the importer's assertions and reads, or writes, other
memory. So such an index becomes the first or the last one; negative ones were counted from the end before. Indices that
are inside by interval arithmetic, and those that follow from loops alone, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sartor.codegen.analysis.indexing import MAPPED, column_of, mapped_extents, scalar_indices
from sartor.codegen.analysis.spans import Span, computed, constant, union, unknown
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, entry_function, loop_sizes, nested
from sartor.codegen.mlir.snippet import inline, tensor_type

_DATA = frozenset({0})
_LOAD, _GENERIC, _LOOP = "util.global.load", "linalg.generic", "scf.for"
_MOVING = (
    *("linalg.transpose", "tensor.cast", "tensor.collapse_shape", "tensor.expand_shape", "tensor.extract"),
    "tensor.extract_slice",
)


def bound_indices(module: ir.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Bound each index that may be outside, in place.

    Args:
        module: linalg on tensors, after ``fold_weights``.
        weights: parameter name to array.
    """
    with module.context, ir.Location.unknown(module.context):
        function = entry_function(module)
        spans = _Spans(weights)
        for op in list(nested(function)):
            for position, count in scalar_indices(op):
                if spans.may_be_outside(op.operands[position], count):
                    op.operands[position] = _bounded(op, op.operands[position], count, function)
            if op.name in MAPPED:
                extents = mapped_extents(op)
                for number, extent in enumerate(extents):
                    column = column_of(op.operands[1], number)
                    if not spans.may_be_outside(column, extent):
                        continue
                    if len(extents) == 1:
                        op.operands[1] = _bounded_tensor(op, op.operands[1], extent)
                    else:
                        op.operands[1] = _with_bounded(op, number, extent)


def _bounded(op: ir.Operation, index: ir.Value, count: int, function: ir.Operation) -> ir.Value:
    """An index from 0 to one less than ``count``. Constants are the function's, as sizes may be opened later."""
    before, kind = ir.InsertionPoint(_outermost(op, function)), ir.IndexType.get()
    for name, number in (("arith.maxsi", 0), ("arith.minsi", count - 1)):
        attributes = {"value": ir.IntegerAttr.get(kind, number)}
        bound = ir.Operation.create("arith.constant", [kind], attributes=attributes, ip=before, loc=op.location)
        operands = [index, bound.results[0]]
        index = ir.Operation.create(name, [kind], operands, ip=ir.InsertionPoint(op), loc=op.location).results[0]
    return index


def _outermost(op: ir.Operation, function: ir.Operation) -> ir.Operation:
    while op.parent is not None and op.parent.operation != function:
        op = op.parent.operation
    return op


def _with_bounded(op: ir.Operation, number: int, extent: int) -> ir.Value:
    """A table of indices with one of its columns within the dimension that this indexes.

    No code chooses between extents, as it would be left out where two open sizes happen to be equal.
    """
    table, column = op.operands[1], column_of(op.operands[1], number)
    whole, point = ir.RankedTensorType(table.type), ir.InsertionPoint(op)
    shape = [*whole.shape[:-1], 1]
    part = tensor_type(shape, whole.element_type)
    place = f"{[0] * (whole.rank - 1) + [number]} {shape} {[1] * whole.rank}"
    if column == table:
        taken = f"%column = tensor.extract_slice %table{place} : {whole} to {part}"
        text = f"util.func private @taken(%table: {whole}) -> {part} {{ {taken} util.return %column : {part} }}"
        (column,) = inline(text, [table], point)
    put = f"%joined = tensor.insert_slice %column into %table{place} : {part} into {whole}"
    arguments = f"%column: {part}, %table: {whole}"
    text = f"util.func private @put({arguments}) -> {whole} {{ {put} util.return %joined : {whole} }}"
    return inline(text, [_bounded_tensor(op, column, extent), table], point)[0]


def _bounded_tensor(op: ir.Operation, indices: ir.Value, extent: int) -> ir.Value:
    """Indices from 0 to one less than ``extent``, which ``op`` reads."""
    kind = ir.RankedTensorType(indices.type)
    element, dims = kind.element_type, ", ".join(f"d{axis}" for axis in range(kind.rank))
    maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * 2)
    loops = ", ".join(['"parallel"'] * kind.rank)
    text = f"""util.func private @bounded(%indices: {kind}) -> {kind} {{
  %zero = arith.constant 0 : {element}
  %last = arith.constant {extent - 1} : {element}
  %empty = tensor.empty() : {kind}
  %bounded = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{loops}]}}
    ins(%indices : {kind}) outs(%empty : {kind}) {{
    ^bb0(%index: {element}, %out: {element}):
    %from = arith.maxsi %index, %zero : {element}
    %inside = arith.minsi %from, %last : {element}
    linalg.yield %inside : {element}
  }} -> {kind} {op.location}
  util.return %bounded : {kind}
}}"""
    return inline(text, [indices], ir.InsertionPoint(op))[0]


class _Spans:
    """Spans of a function's values, which are found when they are asked for; roots say that a value is data."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights = weights
        self._known: dict[ir.Value, Span] = {}

    def may_be_outside(self, index: ir.Value, count: int) -> bool:
        """Whether an index is data, and not known to be from 0 to one less than ``count``."""
        self._follow(index)
        span = self._known[index]
        return bool(span.roots) and count > 0 and not span.within(0, count - 1)

    def _follow(self, value: ir.Value) -> None:
        """Tell the span of a value, after those that it follows from; by no calls of itself, as code may be long."""
        pending, begun = [value], set[ir.Value]()
        while pending:
            current = pending[-1]
            if current not in self._known:
                # What a loop carries depends on itself.
                self._known[current] = _any(current)
                begun.add(current)
                pending += [source for source in _sources(current) if source not in self._known]
                continue
            if pending.pop() in begun:
                begun.remove(current)
                self._known[current] = _fitting(self._span(current), current)

    def _span(self, value: ir.Value) -> Span:
        """The span by those of the sources."""
        op, given = defining_op(value), [self._known[source] for source in _sources(value)]
        if op is None:
            return _counted(*given) if given and _is_counter(value) else given[0] if given else _any(value)
        if op.name == "arith.constant":
            # A tensor of integers is part of the model as weights are; single ones are part of the code.
            return replace(constant(op.attributes["value"]), roots=_DATA if _is_tensor(value) else frozenset())
        if op.name == _LOAD:
            return self._weight(op)
        if op.name == "linalg.index":
            size = loop_sizes(op.parent.operation)[ir.IntegerAttr(op.attributes["dim"]).value]
            return Span((0, size - 1) if size else None)
        if op.name.startswith("arith."):
            return computed(op, given)
        if op.name.startswith("math."):
            # Such as the floor of a place in an image, which follows from loops alone.
            return unknown(given)
        return union(given) if given else _any(value)

    def _weight(self, load: ir.Operation) -> Span:
        array = self._weights.get(str(ir.FlatSymbolRefAttr(load.attributes["global"]).value))
        if array is None or array.dtype.kind not in "iub" or not array.size:
            return _any(load.results[0])
        return Span((int(array.min()), int(array.max())), _DATA)


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _sources(value: ir.Value) -> list[ir.Value]:
    """The values that a span follows from; none for what is not followed."""
    op = defining_op(value)
    if op is None:
        argument = ir.BlockArgument(value)
        op = argument.owner.owner.operation
        if op.name == _GENERIC and _is_parallel(op):
            return [op.operands[argument.arg_number]]
        return list(op.operands)[:2] if _is_counter(value) else []
    if op.name == _GENERIC:
        yielded = body_of(op).operations[-1].operation.operands
        return [yielded[list(op.results).index(value)]] if _is_parallel(op) else []
    if op.name == "tensor.insert_slice":
        return list(op.operands)[:2]
    if _passes_on(op):
        return [op.operands[0]]
    return list(op.operands) if op.name.startswith(("arith.", "math.")) else []


def _passes_on(op: ir.Operation) -> bool:
    """Whether the elements of an op's only result are those of its first operand."""
    if op.name == "util.optimization_barrier":
        return len(op.operands) == 1
    return op.name in _MOVING or op.name == "linalg.fill"


def _is_counter(value: ir.Value) -> bool:
    """Whether a block's argument is the number of a loop's step."""
    argument = ir.BlockArgument(value)
    return bool(argument.owner.owner.operation.name == _LOOP and argument.arg_number == 0)


def _counted(first: Span, end: Span) -> Span:
    """The span of a number that a loop counts."""
    if first.bounds is None or end.bounds is None:
        return unknown((first, end))
    least = first.bounds[0]
    return Span((least, max(least, end.bounds[1] - 1)), unknown((first, end)).roots)


def _is_parallel(op: ir.Operation) -> bool:
    return not any("reduction" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"]))


def _any(value: ir.Value) -> Span:
    """The span of data of which nothing is known."""
    return Span(_limits(value), _DATA)


def _limits(value: ir.Value) -> tuple[int, int] | None:
    """The least and the largest number of a type; None if it is not of integers."""
    kind = ir.ShapedType(value.type).element_type if isinstance(value.type, ir.ShapedType) else value.type
    if isinstance(kind, ir.IndexType):
        return -(1 << 63), (1 << 63) - 1
    if not isinstance(kind, ir.IntegerType):
        return None
    return (0, 1) if kind.width == 1 else (-(1 << (kind.width - 1)), (1 << (kind.width - 1)) - 1)


def _fitting(span: Span, value: ir.Value) -> Span:
    """The span of a value that wraps around where it is outside its type."""
    limits = _limits(value)
    if limits is None or (span.bounds is not None and span.within(*limits)):
        return span
    return Span(limits, span.roots)
