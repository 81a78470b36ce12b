"""Lowered pieces: each complete by itself, none in another's way."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.mlir.dispatches import lower, module_header
from sartor.codegen.mlir.iree_compiler import compile_module
from sartor.codegen.routines.iree.stock import Stock
from sartor.errors import CompileError
from sartor.frontend.imported_model import ImportedModel

TARGET = Target.create("cpu")


@pytest.fixture(scope="module")
def padded(imported_of: Callable[[str], ImportedModel]) -> dict[str, Implementation]:
    """Layers that pad alike, so that the compiler makes one dispatch for all of their pads."""
    tasks = [layer.task for name in ("residual", "blocks") for layer in imported_of(name).graph.layers]
    built = [Stock().build(task, {}, TARGET) for task in {task.key: task for task in tasks}.values()]
    return {f"s{index}": each for index, each in enumerate(built) if isinstance(each, Implementation)}


def test_pieces_share_no_symbol(padded: dict[str, Implementation]) -> None:
    code = lower(padded, TARGET)
    attributes, devices = module_header(TARGET)
    defined: list[str] = []
    for name, each in code.items():
        symbols = re.findall(r"(?:func|export|executable)(?: \w+)* @([\w$.]+)", each.text)
        assert symbols
        assert all(re.match(rf"{name}(_|$)", symbol) for symbol in symbols), symbols
        defined += set(symbols)
    assert len(set(defined)) == len(defined)
    text = "\n".join([f"module attributes {{{attributes}}} {{", devices, *(each.text for each in code.values()), "}"])
    exported = text.replace("util.func private", "util.func public")
    assert compile_module(exported, TARGET.flags, start="flow")


def test_a_symbol_may_begin_like_another(padded: dict[str, Implementation]) -> None:
    first, second, *_ = padded.values()
    code = lower({"a": first, "ab": second, "a_b": first}, TARGET)
    for name, each in code.items():
        assert f"util.func private @{name}(" in each.function
    executables = [re.findall(r"flow.executable private @([\w$]+)", each.text) for each in code.values()]
    assert all(executables)
    flat = [each for found in executables for each in found]
    assert len(set(flat)) == len(flat)


def test_lowering_twice_gives_the_same_text(padded: dict[str, Implementation]) -> None:
    assert lower(padded, TARGET) == lower(padded, TARGET)


_FILLED_BY_A_GENERIC = """util.func public @layer(%arg0: tensor<8x24xf16>) -> tensor<1x1xf32> {
  %zero = arith.constant 0.0 : f32
  %wide = tensor.empty() : tensor<8x24xf32>
  %own = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<8x24xf16>) outs(%wide : tensor<8x24xf32>) {
  ^bb0(%in: f16, %out: f32):
    %next = arith.extf %in : f16 to f32
    linalg.yield %next : f32
  } -> tensor<8x24xf32>
  %empty = tensor.empty() : tensor<1x1xf32>
  %start = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%zero : f32) outs(%empty : tensor<1x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x1xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (0, 0)>],
      iterator_types = ["reduction", "reduction"]} ins(%own : tensor<8x24xf32>) outs(%start : tensor<1x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %next = arith.addf %in, %out : f32
    linalg.yield %next : f32
  } -> tensor<1x1xf32>
  util.return %sum : tensor<1x1xf32>
}"""


def test_constants_that_are_computed_once_keep_their_initialisers() -> None:
    plain = (Schema("cpu", "f32", "nd"),)
    code = lower({"s0": Implementation(_FILLED_BY_A_GENERIC, plain, plain, ())}, TARGET)["s0"].text
    loaded, stored = (set(re.findall(rf"util\.global\.{name} [^\n]*@([\w$.]+)", code)) for name in ("load", "store"))
    assert loaded
    assert stored == loaded


def test_what_is_no_layer_is_refused() -> None:
    with pytest.raises(CompileError, match="no function @layer"):
        lower({"s": Implementation("module {\n}", (), (), ())}, TARGET)
    with pytest.raises(CompileError, match="IREE rejected"):
        lower({"s": Implementation("util.func public @layer() {\n  no.op\n}", (), (), ())}, TARGET)
