"""Keeps indices that are data within what they index.

To ONNX an index outside a table is an error. IREE 3.13 drops the importer's assertions and reads, or writes, other
memory. So such an index becomes the first or the last one; negative ones were counted from the end before. Indices that
are inside by interval arithmetic, and those that follow from loops alone, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sartor.codegen.analysis.indexing import MAPPED, column_of, mapped_extents, scalar_indices
from sartor.codegen.analysis.spans import Span, computed, constant, union, unknown
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, entry_function, loop_sizes, nested
from sartor.codegen.mlir.snippet import inline

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
                columns = [column_of(op.operands[1], number) for number in range(len(extents))]
                if any(map(spans.may_be_outside, columns, extents)):
                    op.operands[1] = _bounded_table(op, extents)


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


def _bounded_table(op: ir.Operation, extents: Sequence[int]) -> ir.Value:
    """A table of indices, each of whose columns is within the dimension that it indexes."""
    table = op.operands[1]
    kind = ir.RankedTensorType(table.type)
    element, rank = kind.element_type, kind.rank
    dims = ", ".join(f"d{axis}" for axis in range(rank))
    lasts = [f"%last{number} = arith.constant {extent - 1} : {element}" for number, extent in enumerate(extents)]
    places = [f"%c{number} = arith.constant {number} : index" for number in range(1, len(extents))]
    chosen = [f"%most0 = arith.addi %last0, %zero : {element}", f"%column = linalg.index {rank - 1} : index"]
    for number in range(1, len(extents)):
        chosen += [
            f"%is{number} = arith.cmpi eq, %column, %c{number} : index",
            f"%most{number} = arith.select %is{number}, %last{number}, %most{number - 1} : {element}",
        ]
    lines = "\n    ".join(chosen if len(set(extents)) > 1 else ())
    most = f"%most{len(extents) - 1}" if len(set(extents)) > 1 else "%last0"
    outside = "\n  ".join([f"%zero = arith.constant 0 : {element}", *lasts, *places])
    kinds = ", ".join(['"parallel"'] * rank)
    text = f"""util.func private @bounded(%table: {kind}) -> {kind} {{
  {outside}
  %empty = tensor.empty() : {kind}
  %bounded = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
    iterator_types = [{kinds}]}} ins(%table : {kind}) outs(%empty : {kind}) {{
    ^bb0(%index: {element}, %out: {element}):
    {lines}
    %from = arith.maxsi %index, %zero : {element}
    %inside = arith.minsi %from, {most} : {element}
    linalg.yield %inside : {element}
  }} -> {kind} {op.location}
  util.return %bounded : {kind}
}}"""
    return inline(text, [table], ir.InsertionPoint(op))[0]


class _Spans:
    """Spans of a function's values, which are found when they are asked for; roots say that a value is data."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights = weights
        self._known: dict[ir.Value, Span] = {}

    def may_be_outside(self, index: ir.Value, count: int) -> bool:
        """Whether an index is data, and not known to be from 0 to one less than ``count``."""
        span = self._of(index)
        return bool(span.roots) and count > 0 and not span.within(0, count - 1)

    def _of(self, value: ir.Value) -> Span:
        if value not in self._known:
            # What a loop carries depends on itself.
            self._known[value] = _any(value)
            self._known[value] = _fitting(self._found(value), value)
        return self._known[value]

    def _found(self, value: ir.Value) -> Span:
        op = defining_op(value)
        if op is None:
            return self._argument(ir.BlockArgument(value))
        if op.name == "arith.constant":
            return constant(op.attributes["value"])
        if op.name == _LOAD:
            return self._weight(op)
        if op.name == "linalg.index":
            size = loop_sizes(op.parent.operation)[ir.IntegerAttr(op.attributes["dim"]).value]
            return Span((0, size - 1) if size else None)
        if op.name == _GENERIC:
            yielded = body_of(op).operations[-1].operation.operands
            return self._of(yielded[list(op.results).index(value)]) if _is_parallel(op) else _any(value)
        if op.name == "tensor.insert_slice":
            return union([self._of(operand) for operand in list(op.operands)[:2]])
        if op.name in _MOVING or op.name == "linalg.fill":
            return self._of(op.operands[0])
        if op.name.startswith("arith."):
            return computed(op, [self._of(operand) for operand in op.operands])
        if op.name.startswith("math."):
            # Such as the floor of a place in an image, which follows from loops alone.
            return unknown([self._of(operand) for operand in op.operands])
        return _any(value)

    def _argument(self, value: ir.BlockArgument) -> Span:
        """The span of an argument of a loop's body, or of another op's."""
        op, number = value.owner.owner.operation, value.arg_number
        if op.name == _GENERIC and _is_parallel(op):
            return self._of(op.operands[number])
        if op.name == _LOOP and number == 0:
            first, end = (self._of(operand) for operand in list(op.operands)[:2])
            if first.bounds is None or end.bounds is None:
                return Span(None, unknown((first, end)).roots)
            least = first.bounds[0]
            return Span((least, max(least, end.bounds[1] - 1)), unknown((first, end)).roots)
        return _any(value)

    def _weight(self, load: ir.Operation) -> Span:
        array = self._weights.get(str(ir.FlatSymbolRefAttr(load.attributes["global"]).value))
        if array is None or array.dtype.kind not in "iub" or not array.size:
            return _any(load.results[0])
        return Span((int(array.min()), int(array.max())), _DATA)


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
