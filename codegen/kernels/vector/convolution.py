"""A convolution layer as a contraction over images in memory."""

from __future__ import annotations

import math

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Step, Storage, cut, panel_bytes_beside, stored_as
from sartor.codegen.kernels.isa.multipliers import DotElement, widening
from sartor.codegen.kernels.layers.convolution_operands import convolution_operands, joins
from sartor.codegen.kernels.layers.dot_choice import tilings_by
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, chunk
from sartor.codegen.kernels.vector.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.vector.dot_packing import pack_dots
from sartor.codegen.kernels.vector.filter_scales import scales_of
from sartor.codegen.mlir.machine import Machine


def pack_filters(filters: TensorType, panel: int) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[OC / panel, KH, KW, IC, panel]``, the last panel filled up with zeros."""
    channels, depth, height, width = filters.shape
    return cut(((-(-channels // panel), panel), (depth,), (height,), (width,)), (0, 3, 4, 2, 1))


def packed_strides(filters: TensorType, panel: int, lanes: int, beside: int = 0) -> FilterStrides:
    """Strides of filters that ``pack_filters`` packed, with ``beside`` bytes after each panel."""
    _, depth, height, width = filters.shape
    column = depth * panel
    return FilterStrides(
        batch=0,
        panel=height * width * column + beside,
        row=width * column,
        column=column,
        depth=panel,
        vector=lanes,
        padded=True,
    )


def convolution_contraction(
    layer: ImageLayer,
    convolution: Convolution,
    tiling: Tiling,
    element: DotElement | None = None,
    weights: Storage | None = None,
) -> Contraction:
    """The contraction of a convolution layer; sets the packing of its filters.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes of tiles.
        element: instruction that multiplies groups; None for multiply-adds of single numbers in f32.
        weights: how filters are stored for multiply-adds in f32; None for as they are.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    if element is None:
        contraction = rowwise_contraction(layer, convolution, tiling, weights)
    else:
        contraction = _dot_contraction(layer, convolution, tiling, element)
    if joins(convolution):
        _, _, height, width = convolution.result.shape
        contraction = contraction.joined(chunk(height * width, tiling.columns))
    contraction.check()
    return contraction


def rowwise_contraction(
    layer: ImageLayer, convolution: Convolution, tiling: Tiling, weights: Storage | None = None
) -> Contraction:
    """The contraction in f32 with the rows of the image as they are, even if pixels could be rearranged.

    Arguments are those of ``convolution_contraction``.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    panel = tiling.vectors * layer.lanes
    packing = stored_as(pack_filters(convolution.filter, panel), weights, 0, panel)
    beside = panel_bytes_beside(weights, panel)
    filters = packed_strides(convolution.filter, panel, layer.lanes, beside)
    read = convolution_operands(layer, convolution, packing, by_planes=True)
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(batches, *read.axes, layer.result, layer.epilogue, layer.lanes, channels, tiling),
        depth=convolution.filter.shape[1],
        image=read.image,
        filters=filters,
        memories=read.memories,
        multiplier=widening(weights),
        meaning=scales_of(weights, filters.panel, beside),
    )


def _dot_contraction(layer: ImageLayer, convolution: Convolution, tiling: Tiling, element: DotElement) -> Contraction:
    """The contraction over groups of input channels, with the rows of the image as they are."""
    packed = pack_dots(convolution.filter, tiling.vectors * layer.lanes, layer.lanes, element)
    read = convolution_operands(layer, convolution, packed.packing)
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(batches, *read.axes, layer.result, layer.epilogue, layer.lanes, channels, tiling),
        depth=convolution.filter.shape[1],
        image=read.image,
        filters=packed.strides,
        memories=read.memories,
        multiplier=element.multiplier(),
        meaning=packed.meaning,
    )


def convolution_tilings(convolution: Convolution, machine: Machine, element: DotElement | None = None) -> list[Tiling]:
    """Tilings worth trying, best guess first, for a convolution that multiplies single channels or, by ``element``,
    groups."""
    _, channels, height, width = convolution.result.shape
    _, inputs, *taps = convolution.filter.shape
    groups = inputs if element is None else -(-inputs // element.group)
    work = Work(height, width, channels, groups * math.prod(taps), joins(convolution)).by(element)
    return tilings_by(element, work, machine)
