"""A convolution layer of one output channel as a kernel over images in memory."""

from __future__ import annotations

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.packing import Step, cut
from sartor.codegen.kernels.layers.convolution_operands import ConvolutionOperands, convolution_operands, joins
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.access import Access, ImageStrides, row_major, vector_stride
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.loops.tilings import chunk
from sartor.codegen.kernels.single.column_sums import ColumnSums
from sartor.codegen.kernels.single.lane_sums import LaneSums
from sartor.codegen.kernels.single.plane import Plane, PlaneCode, PlaneTiling
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

_COLUMN = IMAGE_RANK - 1
_MOST_VECTORS = 4


def single_channel(layer: ImageLayer, convolution: Convolution, tiling: PlaneTiling, *, by_planes: bool) -> PlaneCode:
    """The kernel of a layer; sets the packing of its filters.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes of tiles.
        by_planes: whether the image lies in planes, or else its channels are adjacent.

    Raises:
        ValueError: if the layer cannot be computed so.
    """
    packing = _by_planes(convolution.filter) if by_planes else _by_vectors(convolution.filter, layer.lanes)
    read = convolution_operands(layer, convolution, packing)
    plane = _plane(layer, convolution, read, tiling)
    strides, (source, filters) = read.image, read.memories
    image = Access(source, strides.batch, strides.row, strides.column, _step(strides, layer.lanes, by_planes))
    if joins(convolution):
        columns = _columns(convolution, layer.lanes, by_planes=by_planes)
        plane = plane.joined(columns)
        image = image.flattened(convolution.result.shape[_COLUMN]).split(columns)
    return (ColumnSums if by_planes else LaneSums)(plane, convolution.filter.shape[1], image, filters)


def _columns(convolution: Convolution, lanes: int, *, by_planes: bool) -> int:
    """Pixels of a row of the result, as the kernel walks it."""
    *_, height, width = convolution.result.shape
    tile = lanes * _MOST_VECTORS if by_planes else lanes
    return chunk(height * width, tile) if joins(convolution) else width


def plane_tilings(convolution: Convolution, machine: Machine, *, by_planes: bool) -> list[PlaneTiling]:
    """Tilings worth trying, best guess first."""
    columns = _columns(convolution, machine.lanes, by_planes=by_planes)
    *_, height, width = convolution.result.shape
    groups = many_workgroups(height * width // columns, machine.threads)
    vectors = -(-columns // machine.lanes)
    widths = [each for each in (_MOST_VECTORS, 2, 1) if each <= vectors or each == 1] if by_planes else [1]
    return [PlaneTiling(width, each) for width in widths for each in dict.fromkeys((groups, 1))]


def _step(strides: ImageStrides, lanes: int, by_planes: bool) -> int:
    return strides.blocks if by_planes else vector_stride(strides, lanes)


def _by_vectors(filters: TensorType, lanes: int) -> tuple[Step, ...]:
    """Steps from ``[1, IC, KH, KW]`` to ``[KH, KW, IC / lanes, lanes]``, the last vector filled up with zeros."""
    _, depth, height, width = filters.shape
    return cut(((1,), (-(-depth // lanes), lanes), (height,), (width,)), (0, 3, 4, 1, 2))


def _by_planes(filters: TensorType) -> tuple[Step, ...]:
    """Steps from ``[1, IC, KH, KW]`` to ``[KH, IC, KW]``."""
    _, depth, height, width = filters.shape
    return cut(((1,), (depth,), (height,), (width,)), (0, 2, 1, 3))


def _plane(layer: ImageLayer, convolution: Convolution, read: ConvolutionOperands, tiling: PlaneTiling) -> Plane:
    batches, _, height, width = convolution.result.shape
    if layer.rewrite.task.results[0].shape != convolution.result.shape:
        raise ValueError("ops after the root change the shape of the result")
    chain = layer.rewrite.chain
    result = Access(len(layer.rewrite.task.inputs) + len(layer.rewrite.task.weights), height * width, width, 1, 0)
    layer.check_is_all(chain)
    epilogue = Epilogue.of(chain, lambda value, indexing: _located(layer, value, indexing))
    return Plane(batches, *read.axes, result, epilogue, layer.lanes, tiling)


def _located(layer: ImageLayer, value: ir.Value, indexing: ir.AffineMap) -> Access:
    """The access to an operand of the ops around the root, given the map from the result's dimensions to its own.

    Raises:
        ValueError: if it is no argument, or is read in another order than the result is written.
    """
    argument = layer.argument(value)
    walked = [0] * IMAGE_RANK
    shape = _shape(layer.rewrite, argument)
    for step, expression in zip(row_major(shape), indexing.results, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            walked[expression.position] = step
    batch, _, row, column = walked
    if column not in (0, 1):
        raise ValueError("an operand's columns are not adjacent")
    return Access(argument, batch, row, column, 0 if column else None)


def _shape(rewrite: Rewrite, argument: int) -> tuple[int, ...]:
    inputs, weights = rewrite.task.inputs, rewrite.task.weights
    shape = (inputs[argument] if argument < len(inputs) else weights[argument - len(inputs)]).shape
    if len(shape) == IMAGE_RANK and shape[1] > 1:
        raise ValueError("an operand has more channels than the result")
    return shape
