"""Indices along an axis become constants, which layers that overwrite them do not share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sartor.codegen.mlir.before_lowering.index_constants import index_constants
from sartor.codegen.mlir.iree_compiler import ir, load_dialects

LAYER = """util.func public @layer(%arg0: tensor<{shape}x{element}>) -> tensor<{shape}x{element}> {{
  %0 = tensor.empty() : tensor<{shape}x{element}>
  %1 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], \
iterator_types = ["parallel", "parallel"]}} outs(%0 : tensor<{shape}x{element}>) {{
  ^bb0(%out: {element}):
    %2 = linalg.index {axis} : index
    %3 = arith.index_cast %2 : index to {element}
    linalg.yield %3 : {element}
  }} -> tensor<{shape}x{element}>
  util.return %1 : tensor<{shape}x{element}>
}}"""


@dataclass
class Parsed:
    """The constants of a function that is valid, and the operands of its other operations, by their names."""

    constants: list[np.ndarray]
    operands: dict[str, int]


def rewritten(**layer: object) -> Parsed:
    load_dialects()
    with ir.Context():
        module = ir.Module.parse(LAYER.format(**layer))
        index_constants(module)
        assert module.operation.verify()
        ops = [operation.operation for operation in module.body.operations[0].regions[0].blocks[0].operations]
        values = [op.attributes["value"] for op in ops if op.name == "arith.constant"]
        constants = [np.array(ir.DenseElementsAttr(value)) for value in values]
        return Parsed(constants, {op.name: len(op.operands) for op in ops})


@pytest.mark.parametrize(("element", "dtype"), [("i32", np.int32), ("i64", np.int64)])
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_are_a_constant(axis: int, element: str, dtype: type) -> None:
    found = rewritten(shape="2x8", element=element, axis=axis)
    assert "linalg.generic" not in found.operands
    (constant,) = found.constants
    assert constant.dtype == dtype
    assert (constant == np.indices((2, 8))[axis]).all()


def test_one_index_is_0() -> None:
    assert rewritten(shape="1x1", element="i64", axis=0).constants == [[[0]]]


def test_many_indices_are_spread_from_a_line() -> None:
    found = rewritten(shape="80x8400", element="i64", axis=1)
    (constant,) = found.constants
    assert (constant == np.arange(8400)).all()
    assert found.operands["linalg.generic"] == 2


def test_other_code_stays() -> None:
    load_dialects()
    text = LAYER.format(shape="2x8", element="i64", axis=1).replace("yield %3", "yield %out")
    with ir.Context():
        module = ir.Module.parse(text)
        before = str(module)
        index_constants(module)
        assert str(module) == before
