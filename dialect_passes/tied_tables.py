"""Looks tokens up in the weight of a product where that is their table transposed, so that both are one weight.

Networks whose last product is by their table of tokens have it as a constant of each, once transposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import entry_function, nested, symbol
from sartor.codegen.subgraphs.encoded_look_ups import COLUMNS

_LOAD, _EXTRACT = "util.global.load", "tensor.extract"
# Smaller tables gain nothing.
_LEAST = 1 << 14
# Rows that are compared at once.
_ROWS = 1024


def tie_tables(module: ir.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Replace look-ups of rows by those of columns, in place.

    Args:
        module: linalg on tensors, whose indices are within what they index.
        weights: parameter name to array.
    """
    with module.context, ir.Location.unknown(module.context):
        loads = [op for op in nested(entry_function(module)) if op.name == _LOAD]
        for load in list(loads):
            readers = [use.owner.operation for use in load.results[0].uses]
            if not readers or any(reader.name != _EXTRACT for reader in readers):
                continue
            other = next(_transposed(load, loads, weights), None)
            if other is not None:
                _look_up_columns(load, other, readers)
                loads.remove(load)
                _erase(module, load)


def _transposed(
    load: ir.Operation, loads: list[ir.Operation], weights: Mapping[str, np.ndarray]
) -> Iterator[ir.Operation]:
    """Loads of a matrix that is a table transposed, but for leading dimensions of one."""
    table = weights.get(_name(load))
    if table is None or table.ndim != 2 or table.size < _LEAST or table.dtype != np.float32:
        return
    for other in loads:
        matrix = weights.get(_name(other))
        is_alike = matrix is not None and matrix.dtype == table.dtype and matrix.size == table.size
        if not is_alike or matrix is None or matrix.ndim not in (2, 3) or matrix.shape[-2:] != table.shape[::-1]:
            continue
        columns = matrix.reshape(table.shape[::-1]).T
        if all(
            np.array_equal(columns[row : row + _ROWS], table[row : row + _ROWS]) for row in range(0, len(table), _ROWS)
        ):
            yield other


def _look_up_columns(load: ir.Operation, other: ir.Operation, readers: list[ir.Operation]) -> None:
    kind, before = other.results[0].type, ir.InsertionPoint(load)
    attributes = {"global": other.attributes["global"]}
    matrix = ir.Operation.create(_LOAD, [kind], attributes=attributes, ip=before, loc=load.location).results[0]
    index = ir.IndexType.get()
    zero = ir.Operation.create("arith.constant", [index], attributes={"value": ir.IntegerAttr.get(index, 0)}, ip=before)
    for reader in readers:
        _, row, column = reader.operands
        leading = [zero.results[0]] * (ir.RankedTensorType(kind).rank - 2)
        operands = [matrix, *leading, column, row]
        types = [reader.results[0].type]
        extracted = ir.Operation.create(_EXTRACT, types, operands, ip=ir.InsertionPoint(reader), loc=reader.location)
        reader.parent.operation.attributes[COLUMNS] = ir.UnitAttr.get()
        reader.results[0].replace_all_uses_with(extracted.results[0])
        reader.erase()


def _erase(module: ir.Module, load: ir.Operation) -> None:
    """Erase a load that nothing reads, and what it loads if no other does."""
    name = _name(load)
    load.erase()
    if all(_name(op) != name for op in nested(module.operation) if op.name == _LOAD):
        for view in list(module.body.operations):
            if view.operation.name == "util.global" and symbol(view.operation) == name:
                view.operation.erase()


def _name(load: ir.Operation) -> str:
    return str(ir.FlatSymbolRefAttr(load.attributes["global"]).value)
