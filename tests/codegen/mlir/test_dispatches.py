"""Lowered pieces are complete by themselves, and elementwise ones without AVX-512 are divided by whole vectors."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.bench_module import compile_bench
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower, module_header
from sartor.codegen.mlir.iree_compiler import compile_module
from sartor.codegen.routines.iree.stock import Stock
from sartor.errors import CompileError
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.module import open_module
from sartor.tuning.records.hardware import host

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


AVX2 = Target.create("cpu", "x86-64-v3")
IMAGE = (1, 3, 224, 224)


def _layer(shape: tuple[int, ...], order: str, operation: str, source: str, result: str) -> Implementation:
    """An operation on each element, or the elements in another order; ``order`` is of the result's dimensions."""
    loops = ", ".join(f"d{axis}" for axis in range(len(shape)))
    given = [shape[int(axis)] for axis in order.split("d")[1:]]
    read, written = (
        "tensor<" + "x".join(map(str, [*sizes, kind])) + ">" for sizes, kind in ((given, source), (shape, result))
    )
    body = f"""util.func public @layer(%given: {read}) -> {written} {{
  %empty = tensor.empty() : {written}
  %made = linalg.generic {{indexing_maps = [affine_map<({loops}) -> ({", ".join(re.findall(r"d[0-9]+", order))})>,
      affine_map<({loops}) -> ({loops})>], iterator_types = [{", ".join(['"parallel"'] * len(shape))}]}}
      ins(%given : {read}) outs(%empty : {written}) {{
  ^bb0(%in: {source}, %out: {result}):
    {operation}
    linalg.yield %next : {result}
  }} -> {written}
  util.return %made : {written}
}}"""
    return Implementation(body, (Schema("cpu", source, "nd"),), (Schema("cpu", result, "nd"),), ())


WIDEN = "%next = arith.extf %in : f16 to f32"
BYTES = "%next = arith.uitofp %in : i8 to f32"
ROUND = "%next = arith.truncf %in : f32 to bf16"
KINDS = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.uint8}


def _divided(implementation: Implementation, target: Target) -> list[str]:
    text = lower({"layer": implementation}, target)["layer"].text
    return re.findall(r"distribution = (\[[\d, ]+\])", text)


def test_workgroups_and_vectors_divide_an_image() -> None:
    layer = _layer(IMAGE, "d0d1d2d3", WIDEN, "f16", "f32")
    assert _divided(layer, AVX2) == ["[3584]"]
    # AVX-512 masks for free, and others mask nothing.
    assert not _divided(layer, Target.create("cpu", "x86-64-v4"))
    assert not _divided(layer, Target.create("cpu", "aarch64:neoverse-n1"))


@pytest.mark.parametrize(
    ("shape", "order", "parts"),
    [
        ((64, 784), "d0", ["[4, 784]"]),
        ((7, 8200), "d0", ["[1, 1640]"]),
        # It fits a workgroup.
        ((1, 4096), "d0d1", []),
        # No vectors divide it, or too few together.
        ((3, 4099), "d0d1", []),
        ((8, 4099), "d0d1", []),
        # IREE transposes in blocks.
        ((96, 128), "d1d0", []),
    ],
    ids=["repeated", "long rows", "small", "odd", "prime", "transposed"],
)
def test_tensors_are_divided_where_it_pays(shape: tuple[int, ...], order: str, parts: list[str]) -> None:
    assert _divided(_layer(shape, order, BYTES, "i8", "f32"), AVX2) == parts


@pytest.mark.skipif(not {"avx2", "f16c"} <= set(host().features), reason="this CPU has no AVX2")
@pytest.mark.parametrize(
    ("shape", "order", "operation", "source", "result"),
    [
        (IMAGE, "d0d1d2d3", WIDEN, "f16", "f32"),
        (IMAGE, "d0d1d2d3", ROUND, "f32", "bf16"),
        ((64, 784), "d0", BYTES, "i8", "f32"),
        ((5, 3, 1720), "d0d2", WIDEN, "f16", "f32"),
    ],
    ids=["widened", "rounded", "bytes repeated", "repeated within"],
)
def test_divided_elements_are_what_the_operation_makes_of_them(
    shape: tuple[int, ...], order: str, operation: str, source: str, result: str
) -> None:
    layer = _layer(shape, order, operation, source, result)
    assert _divided(layer, AVX2)
    read = [int(axis) for axis in order.split("d")[1:]]
    given = tuple(shape[axis] for axis in read)
    values = (np.random.default_rng(3).standard_normal(given) * 100).astype(KINDS[source])
    piece = Piece("layer", layer, lower({"layer": layer}, AVX2)["layer"])
    types = [TensorType(given, source)], [TensorType(shape, result)]
    device = open_device("cpu", 1)
    bench = compile_bench(AVX2, {"layer": piece}, {"layer": types})
    program = Program(open_module(bench).native, "layer", device, {})
    (found,) = program.invoke(EXPORT_PREFIX + "layer", [upload(values, device).view])
    named = {"bf16": "bfloat16", "f32": "float32"}[result]
    made = from_view(found, device, TensorSpec("result", named, shape)).to_host()
    spread = values.astype(KINDS[result]).reshape([size if axis in read else 1 for axis, size in enumerate(shape)])
    np.testing.assert_array_equal(made, np.broadcast_to(spread, shape))
