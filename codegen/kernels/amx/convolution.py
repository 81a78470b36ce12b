"""Convolution layers for AMX."""

from __future__ import annotations

import math

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.kernels.amx.contraction import filled
from sartor.codegen.kernels.amx.emitter import TileKernel
from sartor.codegen.kernels.amx.packing import pack_filters, pack_runs
from sartor.codegen.kernels.amx.tilings import TileTiling, tile_depth
from sartor.codegen.kernels.isa.amx import TileElement
from sartor.codegen.kernels.isa.multipliers import check_sums
from sartor.codegen.kernels.layers.convolution_operands import convolution_operands, joins
from sartor.codegen.kernels.layers.image_layer import PLANES_BELOW, ImageLayer
from sartor.codegen.kernels.loops.tiles import Axis

_FEW_CHANNELS = 8


def tile_contraction(
    layer: ImageLayer, convolution: Convolution, tiling: TileTiling, element: TileElement, *, is_read_as_is: bool
) -> TileKernel:
    """The kernel of a convolution layer; sets the packing of its filters.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes of tiles.
        element: instruction that multiplies tiles.
        is_read_as_is: whether the image is stored in the type that is multiplied.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    check_sums(math.prod(convolution.filter.shape[1:]), is_quantised=element.is_quantised)
    merged = is_merged(convolution)
    if merged:
        pixel = filled(convolution.filter.shape[1], element)
        packing = pack_runs(convolution.filter, pixel, tiling, layer.lanes, element)
    else:
        packing = pack_filters(convolution.filter, tiling, layer.lanes, element)
    # Planes are copied in adjacent pixels, so only rows that are not split into phases can be read so.
    by_planes = not element.is_quantised and (merged or convolution.strides[1] == 1)
    read = convolution_operands(layer, convolution, packing, by_planes=by_planes)
    batches, channels, *_ = convolution.result.shape
    rows, columns = read.axes
    depth = convolution.filter.shape[1]
    # Channels in planes are never a run, because they are not adjacent.
    whole = depth % tiling.depth == 0 and convolution.filter.shape[2:] == (1, 1) and read.image.block == depth
    is_staged = merged or not (is_read_as_is and whole and not rows.is_padded and not columns.is_padded)
    result, epilogue = layer.result, layer.epilogue
    if joins(convolution) and not is_staged:
        extent = columns.output
        result, epilogue = result.flattened(extent), epilogue.map_accesses(lambda access: access.flattened(extent))
        rows, columns = _one(1), _one(rows.output * extent)
    return TileKernel(
        batches=batches,
        channels=channels,
        input_channels=depth,
        rows=rows,
        columns=columns,
        image=read.image,
        memories=read.memories,
        result=result,
        epilogue=epilogue,
        lanes=layer.lanes,
        tiling=tiling,
        element=element,
        is_staged=is_staged,
        is_merged=merged,
    )


def is_merged(convolution: Convolution) -> bool:
    """Whether all taps of a row are one run, because few channels would leave most of a tile empty."""
    _, depth, _, width = convolution.filter.shape
    return depth <= _FEW_CHANNELS and width > 1 and convolution.dilations[1] == 1


def joins_uncopied(convolution: Convolution, element: TileElement) -> bool:
    """Whether pixels of all rows form one sequence without a copy: each result reads one pixel, which fills rows of
    tiles."""
    depth = convolution.filter.shape[1]
    return joins(convolution) and depth >= PLANES_BELOW and depth % tile_depth(depth, element) == 0


def _one(extent: int) -> Axis:
    """Windows of one pixel each."""
    return Axis(extent, extent, 1, 1, 1, 0)
