"""Integers become bf16 on CPUs that cannot convert them at once, with the bits of ONNX Runtime's two roundings."""

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
from sartor.codegen.mlir.dispatches import lower
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.module import open_module

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
