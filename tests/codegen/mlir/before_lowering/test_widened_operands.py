"""Operands are widened by dispatches of their own where IREE's code for Vulkan would race."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.mlir.before_lowering.widened_operands import drop_barriers, widen_apart
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.mlir.iree_compiler import ir

_VULKAN = Target.create("vulkan")
_WAYS = {
    "nothing": ("", "tensor<6x3xi32>"),
    "slice": (
        "%moved = tensor.extract_slice %wide[1, 0] [4, 3] [1, 1] : tensor<6x3xi32> to tensor<4x3xi32>",
        "tensor<4x3xi32>",
    ),
    "concatenation": (
        """%room = tensor.empty() : tensor<8x3xi32>
           %half = tensor.insert_slice %other into %room[0, 0] [2, 3] [1, 1] : tensor<2x3xi32> into tensor<8x3xi32>
           %long = tensor.insert_slice %wide into %half[2, 0] [6, 3] [1, 1] : tensor<6x3xi32> into tensor<8x3xi32>
           %moved = tensor.extract_slice %long[2, 0] [6, 3] [1, 1] : tensor<8x3xi32> to tensor<6x3xi32>""",
        "tensor<6x3xi32>",
    ),
    "pad": (
        """%long = tensor.pad %wide low[1, 0] high[1, 0] {
           ^bb0(%i: index, %j: index):
             tensor.yield %zero : i32
           } : tensor<6x3xi32> to tensor<8x3xi32>
           %moved = tensor.extract_slice %long[1, 0] [6, 3] [1, 1] : tensor<8x3xi32> to tensor<6x3xi32>""",
        "tensor<6x3xi32>",
    ),
}


def _layer(way: str) -> str:
    """A product of an operand that is widened from 8 bits and then moved."""
    move, moved = _WAYS[way]
    rows = 4 if way == "slice" else 6
    left = "%moved" if move else "%wide"
    return f"""util.func public @layer(
  %a: tensor<6x3xi8>, %b: tensor<3x2xi32>, %other: tensor<2x3xi32>) -> tensor<{rows}x2xi32> {{
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<6x3xi32>
  %wide = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}} ins(%a : tensor<6x3xi8>) outs(%empty : tensor<6x3xi32>) {{
  ^bb0(%in: i8, %out: i32):
    %word = arith.extui %in : i8 to i32
    linalg.yield %word : i32
  }} -> tensor<6x3xi32>
  {move}
  %sums = tensor.empty() : tensor<{rows}x2xi32>
  %start = linalg.fill ins(%zero : i32) outs(%sums : tensor<{rows}x2xi32>) -> tensor<{rows}x2xi32>
  %y = linalg.matmul ins({left}, %b : {moved}, tensor<3x2xi32>)
      outs(%start : tensor<{rows}x2xi32>) -> tensor<{rows}x2xi32>
  util.return %y : tensor<{rows}x2xi32>
}}"""


def _implementation(way: str) -> Implementation:
    rows = 4 if way == "slice" else 6
    types = [TensorType((6, 3), "i8"), TensorType((3, 2), "i32"), TensorType((2, 3), "i32")]
    plain = [Schema.plain(each, "vulkan") for each in (*types, TensorType((rows, 2), "i32"))]
    return Implementation(_layer(way).replace("\n  %a", "%a", 1), tuple(plain[:3]), (plain[3],), ())


@pytest.mark.parametrize("way", _WAYS)
def test_a_layer_of_a_plan_is_widened_by_another_dispatch_than_multiplies(way: str) -> None:
    code = lower({"s": _implementation(way)}, _VULKAN)["s"]
    assert any("linalg.matmul" in companion for companion in code.companions)
    assert any("arith.extui" in companion for companion in code.companions)
    assert not any("linalg.matmul" in companion and "arith.extui" in companion for companion in code.companions)
    assert "optimization_barrier" not in code.text


def test_operands_of_any_number_of_rows_are_widened_apart() -> None:
    """IREE looks for sizes in front of what makes a tensor, and finds none in front of a barrier."""
    view, wide, sums = "!hal.buffer_view", "tensor<?x3xi32>", "tensor<?x2xi32>"
    text = f"""util.func public @layer(%given: {view}, %b: tensor<3x2xi32>, %rows: index) -> {view} {{
  %a = hal.tensor.import %given : {view} -> tensor<?x3xi8>{{%rows}}
  %zero = arith.constant 0 : i32
  %empty = tensor.empty(%rows) : {wide}
  %wide = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}} ins(%a : tensor<?x3xi8>) outs(%empty : {wide}) {{
  ^bb0(%in: i8, %out: i32):
    %word = arith.extui %in : i8 to i32
    linalg.yield %word : i32
  }} -> {wide}
  %sums = tensor.empty(%rows) : {sums}
  %start = linalg.fill ins(%zero : i32) outs(%sums : {sums}) -> {sums}
  %y = linalg.matmul ins(%wide, %b : {wide}, tensor<3x2xi32>) outs(%start : {sums}) -> {sums}
  %result = hal.tensor.export %y : {sums}{{%rows}} -> {view}
  util.return %result : {view}
}}"""
    code = lower({"s": Implementation(text, (), (), (), symbols=(Symbol("rows", 1, 8),))}, _VULKAN)["s"]
    assert any("linalg.matmul" in companion for companion in code.companions)
    assert any("arith.extui" in companion for companion in code.companions)
    assert not any("linalg.matmul" in companion and "arith.extui" in companion for companion in code.companions)
    assert "optimization_barrier" not in code.text


def test_dequantised_operands_are_widened_apart() -> None:
    """IREE lowers the operation, which a model has where scales are inputs, after barriers are put."""
    text = """util.func public @layer(%a: tensor<6x3xi8>, %b: tensor<3x2xf16>, %scale: f32) -> tensor<6x2xf32> {
      %nothing = arith.constant 0 : i64
      %zero = arith.constant 0.0 : f32
      %room = tensor.empty() : tensor<6x3xf16>
      %wide = iree_linalg_ext.dequantize_affine
          <indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> ()>, affine_map<(m, k) -> ()>,
                            affine_map<(m, k) -> (m, k)>], quant_min = 0, quant_max = 255, input_unsigned>
          ins(%a, %scale, %nothing : tensor<6x3xi8>, f32, i64) outs(%room : tensor<6x3xf16>) -> tensor<6x3xf16>
      %sums = tensor.empty() : tensor<6x2xf32>
      %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<6x2xf32>) -> tensor<6x2xf32>
      %y = linalg.matmul ins(%wide, %b : tensor<6x3xf16>, tensor<3x2xf16>)
          outs(%start : tensor<6x2xf32>) -> tensor<6x2xf32>
      util.return %y : tensor<6x2xf32>
    }"""
    module = ir.Module.parse(text, ir.Context())
    widen_apart(module)
    assert str(module).count("util.optimization_barrier") == 1


def test_dispatches_that_are_formed_stay() -> None:
    """As in layers whose routine forms them: a barrier inside would end the compilation."""
    inner = _layer("nothing").replace("util.return", "flow.return").replace("util.func public @layer(", "")
    body = inner.partition(" {\n")[2].rpartition("}")[0]
    text = f"""util.func public @layer(%a: tensor<6x3xi8>, %b: tensor<3x2xi32>) -> tensor<6x2xi32> {{
      %r = flow.dispatch.region -> (tensor<6x2xi32>) {{
        {body}
      }}
      util.return %r : tensor<6x2xi32>
    }}"""
    module = ir.Module.parse(text, ir.Context())
    before = str(module)
    widen_apart(module)
    assert str(module) == before


def test_barriers_of_loops_stay_when_those_of_operands_are_dropped() -> None:
    module = ir.Module.parse(_layer("nothing"), ir.Context())
    before = str(module)
    widen_apart(module)
    assert str(module).count("util.optimization_barrier") == 1
    drop_barriers(module)
    assert str(module) == before
    counted = """util.func public @f() -> index {
      %i = arith.constant 1 : index
      %b = util.optimization_barrier %i : index
      util.return %b : index
    }"""
    module = ir.Module.parse(counted, ir.Context())
    drop_barriers(module)
    assert "util.optimization_barrier" in str(module)
