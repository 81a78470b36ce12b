"""Rounding by additions gives the bits of the operator that it stands for."""

from __future__ import annotations

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
