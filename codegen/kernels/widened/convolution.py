"""Convolution layers whose image is widened strip by strip."""

from __future__ import annotations

import math
from dataclasses import replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.isa.word_pairs import WordPairElement
from sartor.codegen.kernels.layers.convolution_operands import ConvolutionOperands, convolution_operands, joins
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.widened.packing import PairPacking, pack_pairs
from sartor.codegen.kernels.widened.rows import AdjoiningRows, WidenedRows
from sartor.codegen.kernels.widened.sequence import sequence_strips
from sartor.codegen.kernels.widened.strips import SCRATCH, Strip, WidenedStrips
from sartor.codegen.kernels.widened.tilings import StripTiling, StripWork


def convolution_strips(
    layer: ImageLayer, convolution: Convolution, tiling: StripTiling, element: WordPairElement
) -> WidenedStrips:
    """The kernel of a convolution layer; sets the packing of its filters.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes of strips and tiles.
        element: the instruction.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    adjoins, depth = taps_adjoin(convolution), convolution.filter.shape[1]
    packed = pack_pairs(convolution.filter, tiling.vectors * layer.lanes, layer.lanes, element, adjoins=adjoins)
    read = convolution_operands(layer, convolution, packed.packing)
    if read.image.block < depth or (adjoins and read.image.column != depth):
        raise RejectionError("the channels of a pixel are not adjacent")
    height, width = read.axes
    rows = WidenedRows(height, width.input, depth, read.image)
    if adjoins:
        rows = AdjoiningRows(height, width.input, depth, read.image, width)
        read = replace(read, axes=(height, rows.windows))
    contraction = _contraction(layer, convolution, tiling, read, packed, rows, element)
    contraction.check()
    if joins(convolution):
        return sequence_strips(contraction, rows, read.memories[0], tiling.band)
    return WidenedStrips(read.memories[0], Strip(contraction, rows, 0, tiling.band))


def _contraction(
    layer: ImageLayer,
    convolution: Convolution,
    tiling: StripTiling,
    read: ConvolutionOperands,
    packed: PairPacking,
    rows: WidenedRows,
    element: WordPairElement,
) -> Contraction:
    batches, channels, *_ = convolution.result.shape
    return Contraction(
        nest=Nest(
            batches, *read.axes, layer.result, layer.epilogue, layer.lanes, channels, tiling.tiling, loads_early=True
        ),
        depth=rows.depth,
        image=rows.strides,
        filters=packed.strides,
        memories=(SCRATCH, read.memories[1]),
        multiplier=element.multiplier(),
        meaning=packed.meaning,
    )


def taps_adjoin(convolution: Convolution) -> bool:
    """Whether the taps of a kernel row are multiplied as one sequence: then one of them has half a pair too many, where
    else each has."""
    _, depth, _, width = convolution.filter.shape
    return depth % 2 == 1 and width > 1 and convolution.dilations[1] == 1


def convolution_work(convolution: Convolution) -> StripWork:
    """What is cut into strips, for a convolution."""
    _, channels, height, width = convolution.result.shape
    _, depth, *taps = convolution.filter.shape
    pairs = -(-depth // 2)
    reach = (taps[0] - 1) * convolution.dilations[0]
    row, stride = 2 * pairs * convolution.image.shape[3], convolution.strides[0]
    if taps_adjoin(convolution):
        pairs, taps = -(-depth * taps[1] // 2), taps[:1]
    if joins(convolution):
        return StripWork(height * width, height * width, channels, pairs, True, lambda band: band * 2 * pairs)

    def widened(band: int) -> int:
        return ((band - 1) * stride + reach + 1) * row

    return StripWork(height, width, channels, pairs * math.prod(taps), False, widened)
