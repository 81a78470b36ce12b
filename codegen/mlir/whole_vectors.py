"""Divides elementwise dispatches such that IREE need not mask vectors, for x86 without AVX-512.

IREE gives each workgroup up to 4096 elements, and where these do not divide a tensor it masks every vector of the loop,
also of full workgroups. Only AVX-512 masks for free: AVX2 has no masked loads of numbers narrower than 32 bits, so that
LLVM tests and loads them one by one (an image of 3 x 224 x 224 in 8 bits is widened in 72 instead of 10 us,
docs/records/iree-notes.md), and its masked stores are slow. Here workgroups are as large as whole vectors divide the
tensor.
"""

from __future__ import annotations

import math

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.mlir.operations import body_of, indexing_maps, is_elementwise, loop_sizes, nested

# As many elements as IREE gives a workgroup. With less than a fraction of it, starting workgroups takes the time.
_MOST = 4096
_LEAST = 512
_AROUND = ("iree_tensor_ext.dispatch.", "arith.constant", "tensor.empty", "func.return")
_CONFIGURED = ("compilation_info", "lowering_config")
_INFO = (
    "#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<distribution = {parts}, "
    "vector_common_parallel = {vector}>, translation_info = "
    "#iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>, {{enable_loop_peeling}}>>"
)


def masks_slowly(target: Target) -> bool:
    """Whether a target is an x86 CPU whose masks are no registers of their own.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    if not target.is_cpu:
        return False
    features = machine_of(target).features
    return "sse2" in features and "avx512vl" not in features


def divide_by_vectors(module: ir.Module, target: Target) -> None:
    """Tell IREE how to divide the elementwise dispatches of a module after the flow phase, in place."""
    lanes = machine_of(target).lanes
    with module.context:
        for function in [inner for inner in nested(module.operation) if inner.name == "func.func"]:
            ops = [view.operation for view in body_of(function).operations]
            computing = [op for op in ops if not op.name.startswith(_AROUND)]
            if len(computing) == 1 and (info := _info(computing[0], lanes)) is not None:
                computing[0].attributes["compilation_info"] = ir.Attribute.parse(info)


def _info(op: ir.Operation, lanes: int) -> str | None:
    """How workgroups and vectors divide a dispatch's only op; None if IREE may choose."""
    if not is_elementwise(op) or any(name in op.attributes for name in _CONFIGURED) or not _keeps_order(op):
        return None
    extents = loop_sizes(op)
    if not extents or min(extents) <= 0 or math.prod(extents) <= _MOST or extents[-1] % lanes:
        return None
    parts = _parts(extents, lanes)
    if math.prod(parts) < _LEAST:
        return None
    vector = [*([1] * (len(extents) - 1)), lanes]
    return _INFO.format(parts=parts, vector=vector)


def _keeps_order(op: ir.Operation) -> bool:
    """Whether all operands have the order of the loops, without those along which they repeat."""
    for indexing in indexing_maps(op):
        loops = [result.position for result in indexing.results if isinstance(result, ir.AffineDimExpr)]
        if loops != sorted(loops):
            return False
    return True


def _parts(extents: list[int], lanes: int) -> list[int]:
    """The largest parts of each loop that divide it, the last one's in whole vectors, within what a workgroup takes."""
    parts, left = [1] * len(extents), _MOST
    for loop in reversed(range(len(extents))):
        step = lanes if loop == len(extents) - 1 else 1
        sizes = range(step, min(left, extents[loop]) + 1, step)
        parts[loop] = max((size for size in sizes if extents[loop] % size == 0), default=1)
        left //= parts[loop]
        if parts[loop] < extents[loop]:
            break
    return parts
