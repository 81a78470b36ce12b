"""A convolution layer as a contraction over images in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.convolution import Convolution
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.access import ImageStrides
from sartor.codegen.kernels.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.dot_packing import pack_dots
from sartor.codegen.kernels.factors import DotElement, Dots
from sartor.codegen.kernels.image_layer import ImageLayer
from sartor.codegen.kernels.nest import Nest
from sartor.codegen.kernels.tiles import Axis
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.tilings import Work, chunk, tilings
from sartor.codegen.layer import TensorType
from sartor.codegen.machine import Machine
from sartor.codegen.operations import defining_op
from sartor.codegen.packing import PadTo, Reshape, Step, Transpose


def pack_filters(filters: TensorType, panel: int) -> tuple[Step, ...]:
    """``[OC, IC, KH, KW]`` to ``[OC / panel, KH, KW, IC, panel]``, the last panel filled up with zeros."""
    channels, depth, height, width = filters.shape
    panels = -(-channels // panel)
    return (
        PadTo((panels * panel, depth, height, width)),
        Reshape((panels, panel, depth, height, width)),
        Transpose((0, 3, 4, 2, 1)),
    )


def packed_strides(filters: TensorType, panel: int, lanes: int) -> FilterStrides:
    """Strides of what ``pack_filters`` makes."""
    _, depth, height, width = filters.shape
    column = depth * panel
    return FilterStrides(
        batch=0,
        panel=height * width * column,
        row=width * column,
        column=column,
        depth=panel,
        vector=lanes,
        padded=True,
    )


@dataclass(frozen=True)
class ConvolutionOperands:
    """What a convolution reads.

    Attributes:
        memories: positions of image and filters among the buffers.
        image: strides of the image.
        axes: windows along H and W.
    """

    memories: tuple[int, int]
    image: ImageStrides
    axes: tuple[Axis, Axis]


def convolution_operands(
    layer: ImageLayer, convolution: Convolution, packing: tuple[Step, ...], *, by_planes: bool = False
) -> ConvolutionOperands:
    """The operands of a convolution layer, whose filters are packed by ``packing``.

    Args:
        layer: what becomes a kernel.
        convolution: its root.
        packing: of the filters.
        by_planes: whether an image of few channels may be read as ONNX has it.

    Raises:
        ValueError: if the image is no activation, or the filters are no weight.
    """
    draft, root = layer.draft, layer.draft.root
    image, padding = unpadded(root.operands[0], 0.0)
    source, filters = layer.argument(image), layer.argument(root.operands[1])
    index = filters - len(draft.task.inputs)
    if index < 0 or source >= len(draft.task.inputs):
        raise ValueError("the image is a weight, or the filters are computed")
    draft.set_packing(index, packing)
    if by_planes:
        layer.read_by_planes(source)
    kind = draft.task.inputs[source]
    taps = convolution.filter.shape[2:]
    axes = window_axes(kind, convolution.result, taps, convolution.strides, convolution.dilations, padding)
    return ConvolutionOperands((source, filters), layer.strides(source), axes)


def convolution_contraction(
    layer: ImageLayer, convolution: Convolution, tiling: Tiling, element: DotElement | None = None
) -> Contraction:
    """The contraction of a convolution layer; its filters are packed into panels.

    Args:
        layer: what becomes a kernel.
        convolution: its root.
        tiling: sizes.
        element: what is multiplied in groups; None for single numbers, in f32.

    Raises:
        ValueError: if the layer has no such form.
    """
    if element is None:
        contraction = rowwise_contraction(layer, convolution, tiling)
    else:
        contraction = _dot_contraction(layer, convolution, tiling, element)
    if joins(convolution):
        _, _, height, width = convolution.result.shape
        contraction = contraction.joined(chunk(height * width, tiling.columns))
    contraction.check()
    return contraction


def rowwise_contraction(layer: ImageLayer, convolution: Convolution, tiling: Tiling) -> Contraction:
    """The same with rows kept apart, whatever the window.

    Raises:
        ValueError: if the layer has no such form.
    """
    panel = tiling.vectors * layer.lanes
    read = convolution_operands(layer, convolution, pack_filters(convolution.filter, panel), by_planes=True)
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(batches, channels, *read.axes, layer.result, layer.epilogue, layer.lanes, tiling),
        depth=convolution.filter.shape[1],
        image=read.image,
        filters=packed_strides(convolution.filter, panel, layer.lanes),
        memories=read.memories,
    )


def _dot_contraction(layer: ImageLayer, convolution: Convolution, tiling: Tiling, element: DotElement) -> Contraction:
    """The same over groups of input channels."""
    packed = pack_dots(convolution.filter, tiling.vectors * layer.lanes, layer.lanes, element)
    read = convolution_operands(layer, convolution, packed.packing)
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(batches, channels, *read.axes, layer.result, layer.epilogue, layer.lanes, tiling),
        depth=convolution.filter.shape[1],
        image=read.image,
        filters=packed.strides,
        memories=read.memories,
        factors=Dots(element),
        meaning=packed.meaning,
    )


def joins(convolution: Convolution) -> bool:
    """Whether each result reads one pixel, and all of them lie in memory, so that rows need not be kept apart."""
    return convolution.is_product and not convolution.is_padded


def convolution_tilings(convolution: Convolution, machine: Machine, element: DotElement | None = None) -> list[Tiling]:
    """Tilings worth trying for a convolution that multiplies single channels, or groups of them, best guess first."""
    _, channels, height, width = convolution.result.shape
    _, inputs, *taps = convolution.filter.shape
    groups, prepares = (inputs, False) if element is None else (-(-inputs // element.group), element.is_quantised)
    work = Work(height, width, channels, groups * math.prod(taps), joins(convolution), prepares)
    return tilings(work, machine)


def window_axes(
    image: TensorType,
    result: TensorType,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Sequence[int],
) -> tuple[Axis, Axis]:
    """Windows along H and W of an image without its padding."""
    rows, columns = (
        Axis(*numbers)
        for numbers in zip(image.shape[2:], result.shape[2:], kernel, strides, dilations, padding, strict=True)
    )
    return rows, columns


def unpadded(value: ir.Value, *fillings: float) -> tuple[ir.Value, tuple[int, int]]:
    """What a window reads, and how many pixels of one of ``fillings`` are above and left of it.

    Raises:
        ValueError: if it is padded with something else.
    """
    op = defining_op(value)
    if op is None or op.name != "tensor.pad":
        return value, (0, 0)
    low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
    constant = defining_op(op.regions[0].blocks[0].operations[-1].operation.operands[0])
    if constant is None or constant.name != "arith.constant":
        raise ValueError("the image is padded with what is no constant")
    if ir.FloatAttr(constant.attributes["value"]).value not in fillings or low[:2] != [0, 0] or len(op.operands) != 1:
        raise ValueError(f"the image is padded with something other than {fillings[0]}")
    return op.operands[0], (low[2], low[3])
