"""Writes of rows into a matrix: calls of them, and what these become. Negative numbers of rows count from the last."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.subgraphs.declared_calls import call_instead, callee_of, inline, operators

PREFIX = "written_rows"
"""What names of functions that stand for such writes begin with."""
_OPERATOR = "WrittenRows"
_SEPARATOR = "/"


def call_writes(module: ir.Operation) -> None:
    """Replace operators that stand for writes of rows by calls, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    with module.context, ir.Location.unknown(module.context):
        for number, op in enumerate(operators(module, _OPERATOR)):
            call_instead(module, op, f"{PREFIX}{_SEPARATOR}{number}")


def expand_write(call: ir.Operation) -> None:
    """Replace an op by the ops that compute it, in place, if it is the call of a write."""
    if callee_of(call).partition(_SEPARATOR)[0] == PREFIX:
        matrix, rows, numbers = (TensorType.parse(str(value.type)) for value in call.operands)
        inline(call, _function(matrix, rows, numbers, str(call.location)))


def _function(matrix: TensorType, rows: TensorType, numbers: TensorType, location: str) -> str:
    """MLIR of a function of a matrix, rows, and the number of each of them in the matrix."""
    element = numbers.dtype
    return f"""util.func private @write(%matrix: {matrix}, %rows: {rows}, %numbers: {numbers}) -> {matrix} {{
  %count = arith.constant {matrix.shape[0]} : {element}
  %zero = arith.constant 0 : {element}
  %empty = tensor.empty() : {numbers}
  %places = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]}} ins(%numbers : {numbers}) outs(%empty : {numbers}) {{
    ^bb0(%number: {element}, %out: {element}):
    %is_negative = arith.cmpi slt, %number, %zero : {element}
    %from_end = arith.addi %number, %count : {element}
    %place = arith.select %is_negative, %from_end, %number : {element}
    linalg.yield %place : {element}
  }} -> {numbers} {location}
  %written = iree_linalg_ext.scatter dimension_map = [0] unique_indices(false)
    ins(%rows, %places : {rows}, {numbers}) outs(%matrix : {matrix}) {{
    ^bb0(%new: {matrix.dtype}, %old: {matrix.dtype}):
    iree_linalg_ext.yield %new : {matrix.dtype}
  }} -> {matrix} {location}
  util.return %written : {matrix}
}}"""
