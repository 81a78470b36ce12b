"""Reads and writes the rows of loops' steps as slices.

ONNX has a Gather for the one and a selection among all rows for the other, which would copy them all in each step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sartor.codegen.ir.loop_rows import PUT, PUT_BACK, TAKE, TAKE_BACK
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, entry_function, nested, node_names
from sartor.codegen.mlir.snippet import inline, tensor_parts

_LOOP = "scf.for"
_ROW = re.compile(rf"/(?P<part>{'|'.join(map(re.escape, (PUT_BACK, PUT, TAKE_BACK, TAKE)))})(?:_\d+)?$")
_SLICE = """util.func private @row(%rows: {rows}, %step: index) -> {row} {{
  %end = arith.constant {end} : index
  %back = arith.subi %end, %step : index
  %row = tensor.extract_slice %rows[{place}] [{sizes}] [{ones}] : {rows} to {row}
  util.return %row : {row}
}}"""
_UPDATE = """util.func private @rows(%row: {row}, %rows: {rows}, %step: index) -> {rows} {{
  %end = arith.constant {end} : index
  %back = arith.subi %end, %step : index
  %all = tensor.insert_slice %row into %rows[{place}] [{sizes}] [{ones}] : {row} into {rows}
  util.return %all : {rows}
}}"""


def slice_rows(module: ir.Module) -> None:
    """Replace what reads or writes the row of a loop's step, by its node's name, where it has that form; in place.

    Args:
        module: linalg on tensors, as it was imported.
    """
    with module.context, ir.Location.unknown(module.context):
        for view in list(body_of(entry_function(module)).operations):
            if view.operation.name == _LOOP:
                for op, part in list(_row_ops(view.operation)):
                    _replace(op, part, view.operation)


def _row_ops(loop: ir.Operation) -> Iterator[tuple[ir.Operation, str]]:
    for view in body_of(loop).operations:
        op = view.operation
        if op.name == "linalg.generic":
            names = node_names([op])
            match = _ROW.search(names[-1]) if names else None
            if match is not None:
                yield op, match["part"]


def _replace(op: ir.Operation, part: str, loop: ir.Operation) -> None:
    step, *states = body_of(loop).arguments
    is_put = part in (PUT, PUT_BACK)
    operands = _put(op, states) if is_put else _taken(op)
    if operands is None:
        return
    rows = operands[-1]
    shape, _ = tensor_parts(rows)
    row = operands[0].type if is_put else op.results[0].type
    text = (_UPDATE if is_put else _SLICE).format(
        rows=rows.type,
        row=row,
        end=shape[0] - 1,
        place=", ".join(["%back" if part in (PUT_BACK, TAKE_BACK) else "%step", *["0"] * (len(shape) - 1)]),
        sizes=", ".join(map(str, (1, *shape[1:]))),
        ones=", ".join(["1"] * len(shape)),
    )
    (result,) = inline(text, [*operands, step], ir.InsertionPoint(op))
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _taken(op: ir.Operation) -> list[ir.Value] | None:
    """The rows from which an operation gathers one, whole; None if it is another one."""
    read = [inner for inner in nested(op) if inner.name == "tensor.extract"]
    if len(read) != 1:
        return None
    rows, _, *inner = read[0].operands
    shape, element = tensor_parts(rows)
    if tensor_parts(op.results[0]) != ((1, *shape[1:]), element):
        return None
    axes = [_axis(inner_op) for inner_op in inner]
    return [rows] if axes == list(range(1, len(shape))) else None


def _axis(index: ir.Value) -> int | None:
    owner = index.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "linalg.index":
        return None
    return int(ir.IntegerAttr(owner.operation.attributes["dim"]).value)


def _put(op: ir.Operation, states: list[ir.Value]) -> list[ir.Value] | None:
    """The row and the rows among which an operation puts it; None if it is another one."""
    body = [inner.name for inner in nested(op) if inner != op]
    if body != ["arith.select", "linalg.yield"] or len(op.operands) != 4:
        return None
    _, row, rows, _ = op.operands
    shape, element = tensor_parts(rows)
    if rows not in states or op.results[0].type != rows.type or tensor_parts(row) != (shape[1:], element):
        return None
    return [row, rows]
