"""Divisions of integers are by one where the divisor is zero; other code stays as it is."""

from __future__ import annotations

import pytest

from sartor.codegen.mlir.before_lowering.guarded_divisions import guard_divisions
from sartor.codegen.mlir.iree_compiler import ir

_LAYER = """util.func public @layer(%arg0: tensor<7xi64>, %arg1: tensor<7xi64>) -> tensor<7xi64> {{
  %0 = tensor.empty() : tensor<7xi64>
  %1 = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}} ins(%arg0, %arg1 : tensor<7xi64>, tensor<7xi64>) outs(%0 : tensor<7xi64>) {{
  ^bb0(%in: i64, %in_0: i64, %out: i64):
    %2 = arith.{op} %in, %in_0 : i64
    linalg.yield %2 : i64
  }} -> tensor<7xi64>
  util.return %1 : tensor<7xi64>
}}
"""


@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"])
def test_a_divisor_of_zero_is_one(op: str) -> None:
    found = guard_divisions(_LAYER.format(op=op))
    assert ir.Module.parse(found, ir.Context()).operation.verify()
    assert f"arith.{op} %in, %guard0_by : i64" in found
    assert "arith.select %guard0_is_zero, %guard0_one, %in_0 : i64" in found


def test_other_code_stays_as_it_is() -> None:
    for op in ("addi", "muli"):
        assert guard_divisions(_LAYER.format(op=op)) == _LAYER.format(op=op)
    rows = "  %block = arith.divui %row, %rows : index"
    assert guard_divisions(rows) == rows
