"""What ops index by values: rows that are picked, slices that begin somewhere, elements that are scattered."""

from __future__ import annotations

from collections.abc import Iterator

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op

MAPPED = ("iree_linalg_ext.gather", "iree_linalg_ext.scatter")
"""Ops whose second operand is a table of indices."""
_BOUNDS = ("arith.minsi", "arith.maxsi")


def scalar_indices(op: ir.Operation) -> Iterator[tuple[int, int]]:
    """Positions of operands that are indices, each with how many values from 0 on it may have."""
    if op.name == "tensor.extract":
        yield from enumerate(ir.RankedTensorType(op.operands[0].type).shape, 1)
    elif op.name == "tensor.extract_slice":
        yield from _offsets(op, op.operands[0], 1)
    elif op.name == "tensor.insert_slice":
        yield from _offsets(op, op.operands[1], 2)


def _offsets(op: ir.Operation, whole: ir.Value, first: int) -> Iterator[tuple[int, int]]:
    """Offsets of a slice that are not constant; its sizes are."""
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
    strides = list(ir.DenseI64ArrayAttr(op.attributes["static_strides"]))
    places = zip(
        ir.DenseI64ArrayAttr(op.attributes["static_offsets"]),
        sizes,
        strides,
        ir.RankedTensorType(whole.type).shape,
        strict=True,
    )
    position = first
    for offset, size, stride, extent in places:
        if offset == ir.ShapedType.get_dynamic_stride_or_offset():
            yield position, extent - (size - 1) * stride
            position += 1


def mapped_extents(op: ir.Operation) -> list[int]:
    """The extent of the dimension that each column of the table of indices of a ``MAPPED`` op indexes."""
    indexed = op.operands[0 if op.name == MAPPED[0] else 2]
    shape = ir.RankedTensorType(indexed.type).shape
    return [shape[axis] for axis in ir.DenseI64ArrayAttr(op.attributes["dimension_map"])]


def column_of(table: ir.Value, column: int) -> ir.Value:
    """The value that was inserted as one column of a table; the table itself if it was built in another way."""
    op = defining_op(table)
    while op is not None and op.name == "tensor.insert_slice":
        offset = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))[-1]
        size = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))[-1]
        if offset < 0 or offset <= column < offset + size:
            return op.operands[0] if (offset, size) == (column, 1) else table
        op = defining_op(op.operands[1])
    return table


def before_bounds(index: ir.Value) -> ir.Value:
    """An index, or a table of such, as it was before it was kept from 0 to a last one."""
    op = defining_op(index)
    if op is not None and op.name == "linalg.generic" and len(op.operands) == len(op.results) + 1:
        body = body_of(op)
        (yielded, *_) = body.operations[-1].operation.operands
        return op.operands[0] if before_bounds(yielded) == body.arguments[0] != yielded else index
    for name in _BOUNDS:
        if op is None or op.name != name:
            return index
        value = op.operands[0]
        op = defining_op(value)
    return value
