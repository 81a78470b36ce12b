"""Rounding by additions, and integers that become bf16, give the bits of what they stand for."""

from __future__ import annotations

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
from sartor.codegen.mlir.before_lowering.nearest_even import round_by_adding
from sartor.codegen.mlir.dispatches import lower
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module

_SPECIAL = [0.0, -0.0, -0.3, 0.5, 1.5, 2.5, -0.5, -2.5, 2.0**22 + 0.5, 2.0**23 - 0.5, 2.0**23 + 1, 2.0**31, np.inf]
NUMBERS = np.resize(
    np.concatenate(
        [
            np.array([*_SPECIAL, -np.inf, np.nan, 1e-40, 3e38], np.float32),
            np.random.default_rng(0).standard_normal(3000).astype(np.float32) * 40,
            np.arange(-500, 500).astype(np.float32) + np.float32(0.5),
        ]
    ),
    4096,
)
LAYER = """util.func public @layer(%arg0: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = tensor.empty() : tensor<4096xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%arg0 : tensor<4096xf32>) outs(%0 : tensor<4096xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = math.roundeven %in : f32
    %3 = arith.negf %in : f32
    %4 = math.roundeven %3 : f32
    %5 = arith.negf %4 : f32
    %6 = arith.cmpf oeq, %2, %5 : f32
    %7 = arith.select %6, %2, %in : f32
    linalg.yield %7 : f32
  } -> tensor<4096xf32>
  util.return %1 : tensor<4096xf32>
}
"""


def _implementation(target: Target) -> Implementation:
    schema = Schema(target.device, "f32", "nd")
    return Implementation(LAYER, (schema,), (schema,), ())


def _run(target: Target) -> tuple[str, Array]:
    """What a layer that is left to IREE is lowered to, and its result."""
    implementation = _implementation(target)
    code = lower({"rounding": implementation}, target)["rounding"]
    types = [TensorType((4096,), "f32")]
    bench = compile_bench(target, {"rounding": Piece("rounding", implementation, code)}, {"rounding": (types, types)})
    device = open_device("cpu", 1)
    program = Program(open_module(bench).native, "rounding", device, {})
    (result,) = program.invoke(EXPORT_PREFIX + "rounding", [upload(NUMBERS, device).view])
    found = from_view(result, device, TensorSpec("result", "float32", (4096,))).to_host().copy()
    return code.text, found


def test_what_is_left_to_iree_rounds_by_adding() -> None:
    text, found = _run(Target.create("cpu"))
    assert "math.roundeven" not in text
    np.testing.assert_array_equal(found, np.rint(NUMBERS))
    assert np.array_equal(np.signbit(found), np.signbit(NUMBERS))


def test_only_scalars_of_f32_are_rewritten() -> None:
    kept = ["  %0 = math.roundeven %x : f64", "  %0 = math.roundeven %x : tensor<4xf32>", "  %0 = math.round %x : f32"]
    assert [round_by_adding(each) for each in kept] == kept


@pytest.mark.vulkan
def test_gpus_keep_the_operator_that_they_have() -> None:
    target = Target.create("vulkan")
    assert "math.roundeven" in lower({"rounding": _implementation(target)}, target)["rounding"].text


# The last is a tie of bf16 for f32 alone: its 25th bit is lost on the way.
INTEGERS = np.array([0, 1, -1, 255, 257, 259, -100_001, 2**24 + 1, 2**40 + 2**32 + 1], np.int64)


def _layer(steps: list[tuple[str, str]]) -> str:
    """Operations, each of which gives a tensor of a type to the next, which IREE fuses."""
    lines, element = [], "i64"
    for index, (operation, result) in enumerate(steps):
        read, written = _tensor(element), _tensor(result)
        lines.append(f"""  %empty{index} = tensor.empty() : {written}
  %t{index + 1} = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}} ins(%t{index} : {read}) outs(%empty{index} : {written}) {{
  ^bb0(%in: {element}, %out: {result}):
    %result = {operation} %in : {element} to {result}
    linalg.yield %result : {result}
  }} -> {written}""")
        element = result
    body = "\n".join(lines)
    return f"""util.func public @layer(%t0: {_tensor("i64")}) -> {_tensor("bf16")} {{
{body}
  util.return %t{len(steps)} : {_tensor("bf16")}
}}
"""


def _tensor(element: str) -> str:
    return f"tensor<{INTEGERS.size}x{element}>"


@pytest.mark.parametrize("is_whole", [True, False], ids=["at once", "by two operations"])
@pytest.mark.parametrize(("operation", "kind"), [("arith.sitofp", np.int64), ("arith.uitofp", np.uint64)])
def test_integers_are_rounded_by_way_of_f32(operation: str, kind: type, is_whole: bool) -> None:
    steps = [(operation, "bf16")] if is_whole else [(operation, "f32"), ("arith.truncf", "bf16")]
    target = Target.create("cpu", "x86-64-v3")
    schema = Schema("cpu", "bf16", "nd")
    implementation = Implementation(_layer(steps), (schema,), (schema,), ())
    piece = Piece("convert", implementation, lower({"convert": implementation}, target)["convert"])
    types = [TensorType(INTEGERS.shape, "i64")], [TensorType(INTEGERS.shape, "bf16")]
    bench = compile_bench(target, {"convert": piece}, {"convert": types})
    device = open_device("cpu", 1)
    program = Program(open_module(bench).native, "convert", device, {})
    (result,) = program.invoke(EXPORT_PREFIX + "convert", [upload(INTEGERS, device).view])
    rounded = from_view(result, device, TensorSpec("result", "bfloat16", INTEGERS.shape)).to_host()
    expected = INTEGERS.view(kind).astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(rounded.view(np.uint16), expected.view(np.uint16))
