"""Scratch memory read off lowered code."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.scratch import aligned, scratch_bytes, scratch_of
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from tests.importing import ImportedOf

TARGET = Target.create("cpu")

PADDED = """
util.func private @f(%arg0: tensor<4x8x8xf32>, %arg1: tensor<4xf32>) -> tensor<1x4x8x8xf32> {
  %cst = arith.constant 0.0 : f32
  %1 = flow.tensor.splat %cst : tensor<4x10x10xf32>
  %2 = flow.dispatch @a::@a(%arg0, %1) : (tensor<4x8x8xf32>, tensor<4x10x10xf32>) -> %1
  %3 = flow.dispatch @b::@b(%2, %arg1) : (tensor<4x10x10xf32>, tensor<4xf32>) -> tensor<4x8x8xf32>
  %4 = flow.tensor.reshape %3 : tensor<4x8x8xf32> -> tensor<1x4x8x8xf32>
  util.return %4 : tensor<1x4x8x8xf32>
}"""

WORKSPACE = """
util.func public @layer(%a0: tensor<8xf32>) -> tensor<8xf32> {
  %r:2 = flow.dispatch @k::@k::@k(%a0) {hal.executable.ref = [@k]} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<300xf32>)
  util.return %r#0 : tensor<8xf32>
}"""

CHAIN = """
util.func private @f(%arg0: tensor<16xf32>) -> tensor<16xf32> {
  %0 = flow.dispatch @a::@a(%arg0) : (tensor<16xf32>) -> tensor<100xf32>
  %1 = flow.dispatch @b::@b(%0) : (tensor<100xf32>) -> tensor<200xf32>
  %2 = flow.dispatch @c::@c(%1) : (tensor<200xf32>) -> tensor<50xf32>
  %3 = flow.dispatch @d::@d(%2, %arg0) : (tensor<50xf32>, tensor<16xf32>) -> tensor<16xf32>
  util.return %3 : tensor<16xf32>
}"""

JOINED = """
util.func private @f(%arg0: tensor<16xf32>) -> tensor<64xf32> {
  %0 = flow.dispatch @a::@a(%arg0) : (tensor<16xf32>) -> tensor<16xf32>
  %1 = flow.dispatch @b::@b(%arg0) : (tensor<16xf32>) -> tensor<16xf32>
  %2 = flow.tensor.empty : tensor<32xf32>
  %3 = flow.tensor.update %0, %2[%c0] : tensor<16xf32> -> %2 as tensor<32xf32>
  %4 = flow.tensor.update %1, %3[%c16] : tensor<16xf32> -> %3 as tensor<32xf32>
  %5 = flow.dispatch @c::@c(%4) : (tensor<32xf32>) -> tensor<64xf32>
  util.return %5 : tensor<64xf32>
}"""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(PADDED, 4 * 10 * 10 * 4, id="a result that is returned under another shape is not scratch"),
        pytest.param(WORKSPACE, aligned(300 * 4), id="a workspace is a result that is not returned"),
        pytest.param(CHAIN, aligned(100 * 4) + aligned(200 * 4), id="two neighbours are there at once, not all three"),
        pytest.param(JOINED, 32 * 4, id="parts are written where they are joined"),
    ],
)
def test_intermediates_that_are_there_at_once_count(function: str, expected: int) -> None:
    assert scratch_bytes(function) == expected


def test_kernels_and_lowered_code_are_weighed_alike(imported_of: ImportedOf) -> None:
    graph = imported_of("residual").graph
    (task, *_) = graph.tasks().values()
    variants = list_candidates(graph, routines_for(()), TARGET).variants[task.key]
    found = scratch_of({number: variant.implementation for number, variant in enumerate(variants)}, TARGET)
    by_name = {variants[number].descriptor: size for number, size in found.items()}
    assert len(found) == len(variants)
    stock = next(size for name, size in by_name.items() if name.endswith(".stock"))
    # The image is padded by one pixel on each side before candidate 0 reads it.
    assert stock == aligned(16 * 8 * 8 * 4)
    assert all(size > 0 for name, size in by_name.items() if "winograd" in name)
    assert all(size == 0 for name, size in by_name.items() if ".direct{" in name)
