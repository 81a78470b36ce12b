"""Pack weights in the order in which AMX reads them: tiles of ``group`` adjacent numbers of each channel."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import PadTo, Reshape, Step, Transpose, cut, narrowed
from sartor.codegen.kernels.amx.tilings import TileTiling
from sartor.codegen.kernels.isa.amx import TileElement


def pack_filters(filters: TensorType, tiling: TileTiling, lanes: int, element: TileElement) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[panel, KH, KW, chunk, vector, depth / group, lanes, group]``, filled up
    with zeros."""
    channels, depth, height, width = filters.shape
    panel, group = tiling.vectors * lanes, element.group
    panels, chunks = -(-channels // panel), -(-depth // tiling.depth)
    steps = cut(
        ((panels, tiling.vectors, lanes), (chunks, tiling.depth // group, group), (height,), (width,)),
        (0, 6, 7, 3, 1, 4, 2, 5),
    )
    return narrowed(steps, element.dtype, 0, panel)


def pack_runs(
    filters: TensorType, pixel: int, tiling: TileTiling, lanes: int, element: TileElement
) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[panel, KH, chunk, vector, depth / group, lanes, group]``, where a chunk is
    a part of all taps of a row, each of ``pixel`` channels."""
    channels, _, height, width = filters.shape
    panel, group, run = tiling.vectors * lanes, element.group, width * pixel
    panels, chunks = -(-channels // panel), -(-run // tiling.depth)
    steps: tuple[Step, ...] = (
        PadTo((panels * panel, pixel, height, width)),
        Transpose((0, 2, 3, 1)),
        Reshape((panels * panel, height, run)),
        *cut(
            ((panels, tiling.vectors, lanes), (height,), (chunks, tiling.depth // group, group)),
            (0, 3, 4, 1, 5, 2, 6),
        ),
    )
    return narrowed(steps, element.dtype, 0, panel)


def pack_matrix(matrix: TensorType, tiling: TileTiling, lanes: int, element: TileElement) -> tuple[Step, ...]:
    """Steps from ``[K, N]`` to ``[panel, chunk, vector, depth / group, lanes, group]``, filled up with zeros."""
    depth, channels = matrix.shape
    panel, group = tiling.vectors * lanes, element.group
    panels, chunks = -(-channels // panel), -(-depth // tiling.depth)
    sizes = (chunks, tiling.depth // group, group), (panels, tiling.vectors, lanes)
    return narrowed(cut(sizes, (3, 0, 4, 1, 5, 2)), element.dtype, 1, panel)
