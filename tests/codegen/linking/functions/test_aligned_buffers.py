"""What kernels for GPUs read and write begins at aligned places, though IREE joins and cuts tensors in place."""

from __future__ import annotations

import re

import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.executable import Kernel
from sartor.codegen.linking.functions.aligned_buffers import align_buffers
from sartor.codegen.linking.stitching import module_text
from sartor.codegen.mlir.dispatches import module_header
from sartor.codegen.mlir.iree_compiler import bytecode, ir, translate

CUDA, VULKAN = Target.create("cuda", "sm_80"), Target.create("vulkan", "ampere")
ROW, WHOLE = TensorType((1, 64), "f32"), TensorType((1, 256), "f32")
KERNEL = Kernel("small", (ROW,), (ROW,), (1, 1, 1), 1, threads=32)
LARGE = Kernel("large", (WHOLE,), (WHOLE,), (1, 1, 1), 1, threads=32)
JOINED = f"""
  {KERNEL.dispatch(["%given"])}
  %empty = flow.tensor.empty : {WHOLE}
  %found = flow.tensor.update %r, %empty[%c0, %first] : {ROW} -> %empty as {WHOLE}
"""
CUT = f"""
  {LARGE.dispatch(["%given"]).replace("%r", "%whole", 1)}
  %part = flow.tensor.slice %whole[%c0, %first for %c1, %c64] : {WHOLE} -> {ROW}
  {KERNEL.dispatch(["%part"])}
  %found = flow.tensor.reshape %r : {ROW} -> {ROW}
"""
RESHAPED = f"""
  %line = flow.tensor.slice %given[%first for %c64] : tensor<256xf32> -> tensor<64xf32>
  %part = flow.tensor.reshape %line : tensor<64xf32> -> {ROW}
  {KERNEL.dispatch(["%part"])}
  %back = flow.tensor.reshape %r : {ROW} -> tensor<64xf32>
  %empty = flow.tensor.empty : tensor<256xf32>
  %found = flow.tensor.update %back, %empty[%first] : tensor<64xf32> -> %empty as tensor<256xf32>
"""
LINE = TensorType((256,), "f32")


def _module(body: str, given: TensorType, found: TensorType, first: int, target: Target = CUDA) -> str:
    attributes, devices = module_header(target)
    kernels = [each.executable(target, lambda *_: None) for each in (KERNEL, LARGE)]
    constants = "\n".join(f"  %c{number} = arith.constant {number} : index" for number in (0, 1, 64))
    function = (
        f"util.func public @main(%view: !hal.buffer_view) -> !hal.buffer_view {{\n{constants}\n"
        f"  %first = arith.constant {first} : index\n"
        f"  %given = hal.tensor.import %view : !hal.buffer_view -> {given}\n{body}"
        f"  %out = hal.tensor.export %found : {found} -> !hal.buffer_view\n  util.return %out : !hal.buffer_view\n}}"
    )
    return module_text(attributes, [devices, *kernels, function])


@pytest.mark.parametrize(
    ("target", "first", "barriers"),
    [(CUDA, 0, 0), (CUDA, 4, 0), (CUDA, 13, 1), (CUDA, 6, 1), (VULKAN, 0, 0), (VULKAN, 16, 0), (VULKAN, 4, 1)],
)
@pytest.mark.parametrize(("body", "given", "found"), [(JOINED, ROW, WHOLE), (CUT, WHOLE, ROW)], ids=["joined", "cut"])
def test_what_is_not_aligned_is_copied(
    body: str, given: TensorType, found: TensorType, target: Target, first: int, barriers: int
) -> None:
    context = ir.Context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(_module(body, given, found, first, target))
        align_buffers(module, target)
        text, planned = str(module), translate(bytecode(module.operation), target.flags, start="flow", to="stream")
    assert text.count("flow.tensor.barrier") == barriers
    offsets = [int(each) for each in re.findall(r"^ *(?:ro|rw|wo) %\w+\[%c(\d+) for", planned, re.MULTILINE)]
    assert len(offsets) == 2 * planned.count("stream.cmd.dispatch") > 0
    assert all(offset % (16 if target is CUDA else 64) == 0 for offset in offsets)
    # What is aligned is not copied: the kernel is given its place.
    assert (4 * first in offsets) == (barriers == 0)


def test_tensors_are_followed_through_reshapes() -> None:
    context = ir.Context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(_module(RESHAPED, LINE, LINE, 13))
        align_buffers(module, CUDA)
        module.operation.verify()
        assert str(module).count("flow.tensor.barrier") == 2


def test_a_cpu_reads_and_writes_elements_where_they_are() -> None:
    cpu = Target.create("cpu")
    context = ir.Context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(_module(JOINED, ROW, WHOLE, 13))
        before = str(module)
        align_buffers(module, cpu)
        assert str(module) == before
