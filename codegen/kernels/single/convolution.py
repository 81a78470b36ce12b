"""A convolution layer of one or a few output channels as a kernel over images in memory."""

from __future__ import annotations

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK, PLAIN_IMAGE
from sartor.codegen.ir.packing import Step, cut
from sartor.codegen.ir.rejection import RejectionError
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

_, _CHANNEL, _ROW, _COLUMN = range(IMAGE_RANK)
_MOST_VECTORS = 4


def planes_of_channels(
    layer: ImageLayer, convolution: Convolution, tiling: PlaneTiling, *, by_planes: bool
) -> PlaneCode:
    """The kernel of a layer; sets the packing of its filters, and reads all images but its own as ONNX has them.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes of tiles.
        by_planes: whether the image lies in planes, or else its channels are adjacent.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    packing = _by_planes(convolution.filter) if by_planes else _by_vectors(convolution.filter, layer.lanes)
    read = convolution_operands(layer, convolution, packing)
    strides, (source, filters) = read.image, read.memories
    layer.inputs = _beside(layer, source)
    planes = tuple(
        _plane(layer, convolution, read, tiling, index) for index in range(convolution.result.shape[_CHANNEL])
    )
    image = Access(source, strides.batch, strides.row, strides.column, _step(strides, layer.lanes, by_planes))
    if joins(convolution):
        columns = _columns(convolution, layer.lanes, by_planes=by_planes)
        planes = tuple(plane.joined(columns) for plane in planes)
        image = image.flattened(convolution.result.shape[_COLUMN]).split(columns)
    return (ColumnSums if by_planes else LaneSums)(planes, convolution.filter.shape[1], image, filters)


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
    widths = _widths(vectors, convolution.result.shape[_CHANNEL], machine) if by_planes else [1]
    return [PlaneTiling(width, count) for width in widths for count in dict.fromkeys((groups, 1))]


def _widths(vectors: int, channels: int, machine: Machine) -> list[int]:
    """Vectors of tiles for rows of so many. Those of several channels fill the registers: each channel has an
    accumulator for each of the vectors, which are all loaded, and one register repeats a filter."""
    if channels == 1:
        return [count for count in (_MOST_VECTORS, 2, 1) if count <= vectors or count == 1]
    most = (machine.registers - 1) // (channels + 1)
    return list(dict.fromkeys(balanced(vectors, max(1, count)) for count in (most, most // 2)))


def _step(strides: ImageStrides, lanes: int, by_planes: bool) -> int:
    return strides.blocks if by_planes else vector_stride(strides, lanes)


def _by_vectors(filters: TensorType, lanes: int) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[OC, KH, KW, IC / lanes, lanes]``, the last vector filled up with zeros."""
    channels, depth, height, width = filters.shape
    return cut(((channels,), (-(-depth // lanes), lanes), (height,), (width,)), (0, 3, 4, 1, 2))


def _by_planes(filters: TensorType) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[KH, IC, KW, OC]``."""
    channels, depth, height, width = filters.shape
    return cut(((channels,), (depth,), (height,), (width,)), (2, 1, 3, 0))


def _beside(layer: ImageLayer, source: int) -> tuple[str, ...]:
    """Layouts of the activations, of which all images but one lie as ONNX has them."""
    read = zip(layer.inputs, layer.rewrite.task.inputs, strict=True)
    return tuple(
        layout if index == source or len(tensor.shape) != IMAGE_RANK else PLAIN_IMAGE
        for index, (layout, tensor) in enumerate(read)
    )


def _plane(
    layer: ImageLayer, convolution: Convolution, read: ConvolutionOperands, tiling: PlaneTiling, channel: int
) -> Plane:
    batches, channels, height, width = convolution.result.shape
    if layer.rewrite.task.results[0].shape != convolution.result.shape:
        raise RejectionError("ops after the root change the shape of the result")
    chain = layer.rewrite.chain
    memory, pixels = len(layer.rewrite.task.inputs) + len(layer.rewrite.task.weights), height * width
    result = Access(memory, channels * pixels, width, 1, 0, channel * pixels)
    layer.check_is_all(chain)
    epilogue = Epilogue.of(chain, lambda value, indexing: _located(layer, value, indexing, channel))
    return Plane(batches, *read.axes, result, epilogue, layer.lanes, tiling)


def _located(layer: ImageLayer, value: ir.Value, indexing: ir.AffineMap, channel: int) -> Access:
    """The access to what a channel needs of an operand of the ops around the root, given the map from the result's
    dimensions to its own.

    Raises:
        RejectionError: if it is no argument, or is read in another order than the result is written.
    """
    argument = layer.argument(value)
    walked = [0] * IMAGE_RANK
    shape = _shape(layer.rewrite, argument)
    if argument < len(layer.inputs) and layer.inputs[argument] != PLAIN_IMAGE and len(shape) == IMAGE_RANK:
        raise RejectionError("the image is read by the ops after the root too")
    for step, expression in zip(row_major(shape), indexing.results, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            walked[expression.position] = step
    batch, step, row, column = walked
    if column not in (0, 1):
        raise RejectionError("an operand's columns are not adjacent")
    return Access(argument, batch, row, column, 0 if column else None, channel * step)


def _shape(rewrite: Rewrite, argument: int) -> tuple[int, ...]:
    inputs, weights = rewrite.task.inputs, rewrite.task.weights
    return (inputs[argument] if argument < len(inputs) else weights[argument - len(inputs)]).shape
