"""Weights in the order in which the matrix unit reads them: tiles of ``group`` neighbouring numbers of each channel."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import PadTo, Quantise, Reshape, Round, Step, Transpose
from sartor.codegen.kernels.amx.tilings import TileTiling
from sartor.codegen.kernels.isa.amx import TileElement


def pack_filters(filters: TensorType, tiling: TileTiling, lanes: int, element: TileElement) -> tuple[Step, ...]:
    """``[OC, IC, KH, KW]`` to ``[panel, KH, KW, chunk, vector, depth / group, lanes, group]``, filled up with zeros."""
    channels, depth, height, width = filters.shape
    panel, group = tiling.vectors * lanes, element.group
    panels, chunks = -(-channels // panel), -(-depth // tiling.depth)
    steps = (
        PadTo((panels * panel, chunks * tiling.depth, height, width)),
        Reshape((panels, tiling.vectors, lanes, chunks, tiling.depth // group, group, height, width)),
        Transpose((0, 6, 7, 3, 1, 4, 2, 5)),
    )
    return _narrowed(steps, 0, panel, element)


def pack_runs(
    filters: TensorType, pixel: int, tiling: TileTiling, lanes: int, element: TileElement
) -> tuple[Step, ...]:
    """``[OC, IC, KH, KW]`` to ``[panel, KH, chunk, vector, depth / group, lanes, group]``: chunks of the taps of a row,
    each of ``pixel`` channels."""
    channels, _, height, width = filters.shape
    panel, group, run = tiling.vectors * lanes, element.group, width * pixel
    panels, chunks = -(-channels // panel), -(-run // tiling.depth)
    steps = (
        PadTo((panels * panel, pixel, height, width)),
        Transpose((0, 2, 3, 1)),
        Reshape((panels * panel, height, run)),
        PadTo((panels * panel, height, chunks * tiling.depth)),
        Reshape((panels, tiling.vectors, lanes, height, chunks, tiling.depth // group, group)),
        Transpose((0, 3, 4, 1, 5, 2, 6)),
    )
    return _narrowed(steps, 0, panel, element)


def pack_matrix(matrix: TensorType, tiling: TileTiling, lanes: int, element: TileElement) -> tuple[Step, ...]:
    """``[K, N]`` to ``[panel, chunk, vector, depth / group, lanes, group]``, filled up with zeros."""
    depth, channels = matrix.shape
    panel, group = tiling.vectors * lanes, element.group
    panels, chunks = -(-channels // panel), -(-depth // tiling.depth)
    steps = (
        PadTo((chunks * tiling.depth, panels * panel)),
        Reshape((chunks, tiling.depth // group, group, panels, tiling.vectors, lanes)),
        Transpose((3, 0, 4, 1, 5, 2)),
    )
    return _narrowed(steps, 1, panel, element)


def _narrowed(steps: tuple[Step, ...], axis: int, panel: int, element: TileElement) -> tuple[Step, ...]:
    """The same in the type that is multiplied; ``axis`` is that of the channels."""
    if element.is_quantised:
        return (Quantise(axis, panel, steps),)
    return (*steps, Round(element.dtype))
