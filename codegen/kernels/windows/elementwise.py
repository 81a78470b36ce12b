"""Elementwise layers over images, on vectors of channels: operands may be images, or numbers that pixels share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.nest import Accumulate, Nest, NestCode, Starts, Tile
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of, indexing_maps, is_elementwise, keeps_order
from sartor.codegen.mlir.rewriting.chain import Chain
from sartor.codegen.mlir.snippet import tensor_parts

_TILES = ((4, 4), (8, 2))
_WITHOUT_CODE = frozenset({"tensor.empty", "arith.constant"})


def elementwise_result(task: Task) -> TensorType | Rejected:
    """The image ``[N, C, H, W]`` that an elementwise layer computes."""
    if task.kind is not LayerKind.TOLERANT or len(task.results) != 1:
        return Rejected("the layer has a root, or several results")
    (result,) = task.results
    if len(result.shape) != IMAGE_RANK or 0 in result.shape:
        return Rejected("the layer's result is not an image with elements")
    return result


@dataclass(frozen=True)
class Elementwise(NestCode):
    """A layer all of whose ops are elementwise; its tiles start from the first of them."""

    def accumulation(self, asm: Assembler, memories: Sequence[ir.Value]) -> Accumulate:
        """The function that emits the first op of a tile."""

        def first(_: Tile, starts: Starts) -> list[ir.Value]:
            return starts()

        return first


def elementwise_kernel(layer: ImageLayer, tiling: Tiling) -> Elementwise:
    """The kernel of an elementwise layer.

    Raises:
        RejectionError: if some op is not elementwise over images of the result's shape, or reads a computed image in
            another order.
    """
    batches, channels, height, width = layer.rewrite.task.results[0].shape
    axes = (Axis(height, height, 1, 1, 1, 0), Axis(width, width, 1, 1, 1, 0))
    epilogue = layer.epilogue_of(_chain(layer.rewrite.function))
    return Elementwise(Nest(batches, *axes, layer.result, epilogue, layer.lanes, channels, tiling))


def _chain(function: ir.Operation) -> Chain:
    """All ops of a layer as a chain whose root is the first one."""
    first, *others = elementwise_ops(function)
    return Chain(None, first, tuple(others))


def elementwise_ops(function: ir.Operation) -> list[ir.Operation]:
    """The ops of a layer, in order.

    Raises:
        RejectionError: if there are none, one is not elementwise over tensors of the result's shape, or one reads a
            tensor of that shape in another order.
    """
    *ops, returned = [view.operation for view in body_of(function).operations]
    ops = [op for op in ops if op.name not in _WITHOUT_CODE]
    shape = tensor_parts(returned.operands[0])[0]
    if not ops or any(not is_elementwise(op) or tensor_parts(op.results[0])[0] != shape for op in ops):
        raise RejectionError("the layer has other ops than elementwise ones over tensors of the result's shape")
    for op in ops:
        for value, indexing in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
            if _is_whole(value, shape) and not keeps_order(indexing, shape):
                raise RejectionError("an op reads its operand in another order")
    return ops


def _is_whole(value: ir.Value, shape: tuple[int, ...]) -> bool:
    """Whether a value is a tensor of the result's shape."""
    return isinstance(value.type, ir.RankedTensorType) and tensor_parts(value)[0] == shape


def elementwise_tilings(result: TensorType, machine: Machine) -> list[Tiling]:
    """Tilings worth trying, best guess first."""
    _, channels, height, width = result.shape
    vectors, groups = -(-channels // machine.lanes), many_workgroups(height, machine.threads)
    shapes = [(balanced(width, columns), min(wide, vectors)) for columns, wide in _TILES]
    return [Tiling(1, *shape, groups, 1, 1) for shape in dict.fromkeys(shapes)]
