"""Keeps what our kernels for GPUs read and write at aligned places.

IREE has a result written where it is concatenated, and a part of a tensor read where it lies. Its own kernels know the
offset when they are compiled; ours are given the place when they run. On CUDA they read and write up to 16 bytes at
once. On Vulkan the place is that of a descriptor, which has to be a multiple of what the driver asks for
(``minStorageBufferOffsetAlignment``). Where a place is not aligned, a barrier has IREE copy. It copies within the
device's commands, for which nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.functions.borrowed_inputs import HERE
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import defining_op, nested
from sartor.codegen.mlir.snippet import inline
from sartor.devices import CUDA, VULKAN

# Drivers for Vulkan of AMD, NVIDIA, Intel and Arm, and Mesa's for CPUs, ask for 4 to 64 bytes.
_ALIGNMENTS = {CUDA: 16, VULKAN: 64}
_SLICE, _UPDATE = "flow.tensor.slice", "flow.tensor.update"
# What leaves numbers where they are.
_VIEWS = frozenset({"flow.tensor.bitcast", "flow.tensor.clone", "flow.tensor.reshape", "flow.tensor.transfer", _SLICE})
_BYTE = 8


def align_buffers(module: ir.Module, target: Target) -> None:
    """Put barriers before results of kernels that are concatenated, and after parts that kernels read, in place.

    Args:
        module: at the flow level, with functions inlined.
        target: what it is compiled for.
    """
    alignment = _ALIGNMENTS.get(target.device)
    if alignment is None:
        return
    with module.context, ir.Location.unknown(module.context):
        for op in [op_of_buffer for op_of_buffer in nested(module.operation) if op_of_buffer.name in (_SLICE, _UPDATE)]:
            if _is_aligned(op, alignment):
                continue
            if op.name == _SLICE:
                _align_slice(op)
            else:
                _align_update(op)


def _align_slice(op: ir.Operation) -> None:
    part = op.results[0]
    if any(map(_is_kernel, _readers(part))):
        uses = [(use.owner.operation, use.operand_number) for use in part.uses]
        block = [view.operation for view in op.block.operations]
        apart = _apart(part, ir.InsertionPoint(block[block.index(op) + 1]))
        for reader, number in uses:
            reader.operands[number] = apart


def _align_update(op: ir.Operation) -> None:
    written = _written(op)
    if _is_kernel(_source(written)):
        number = list(op.operands).index(written)
        op.operands[number] = _apart(written, ir.InsertionPoint(op))


def _is_aligned(op: ir.Operation, alignment: int) -> bool:
    """Whether a slice begins, or an update writes, at a multiple of some bytes."""
    tensor = ir.RankedTensorType(op.operands[0].type)
    if not tensor.has_static_shape:
        return False
    offset = 0
    for start, size in zip(_starts(op), tensor.shape, strict=True):
        constant = defining_op(start)
        if constant is None or constant.name != "arith.constant":
            return False
        offset = offset * size + ir.IntegerAttr(constant.attributes["value"]).value
    return bool(offset * tensor.element_type.width % (alignment * _BYTE) == 0)


def _starts(op: ir.Operation) -> list[ir.Value]:
    """The place in the tensor that is sliced or updated: it is the first operand, before its dynamic sizes."""
    tensor = ir.RankedTensorType(op.operands[0].type)
    first = 1 + sum(map(tensor.is_dynamic_dim, range(tensor.rank)))
    return list(op.operands)[first : first + tensor.rank]


def _written(update: ir.Operation) -> ir.Value:
    """What an update puts into the tensor."""
    return next(operand for operand in list(update.operands)[1:] if isinstance(operand.type, ir.RankedTensorType))


def _source(value: ir.Value) -> ir.Operation | None:
    """The op that computes what a value is a view of."""
    op = defining_op(value)
    while op is not None and op.name in _VIEWS:
        op = defining_op(op.operands[0])
    return op


def _readers(value: ir.Value) -> Iterator[ir.Operation]:
    """Ops that read a value or a view of it."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in _VIEWS:
            yield from _readers(op.results[0])
        else:
            yield op


def _is_kernel(op: ir.Operation | None) -> bool:
    """Whether an op dispatches a kernel of ours, which is an executable already."""
    return op is not None and op.name == "flow.dispatch" and "hal.executable.ref" in op.attributes


def _apart(value: ir.Value, point: ir.InsertionPoint) -> ir.Value:
    """The value, in a buffer of its own."""
    barrier = (
        f"util.func private @apart(%value: {value.type}) -> {value.type} {{\n"
        f"  %apart = flow.tensor.barrier %value : {value.type} on #hal.device.affinity<{HERE}>\n"
        f"  util.return %apart : {value.type}\n}}"
    )
    (result,) = inline(barrier, [value], point)
    return result
