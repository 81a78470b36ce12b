"""Tile sizes for IREE's implicit matrix product: of threads in f32, of matrices for tensor cores in f16 and bf16."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import BF16
from sartor.codegen.ir.machines.cuda import WARP, CudaArchitecture
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, ROWS

DEPTH_OF_THREADS = 16
"""A step of the reduction in f32; of a larger one, registers spill."""

# Numbers of a thread along the last two dimensions, and threads along the last.
_COLUMNS, _CHANNELS, _ACROSS = 8, 8, (16, 8, 32)
# With fewer sums the assembler gives a thread few registers, so that more workgroups fit, and then some spill.
_FEWEST_SUMS = 40
_MOST_THREADS, _FEWER_THREADS = 256, 128
# What a kernel has without asking the driver for more.
_SHARED_BYTES = 48 << 10
_FLOAT_BYTES, _HALF_BYTES = 4, 2
# Matrices of a warp's sums. The sums of padded results go through an array, which registers hold up to four.
_MOST_MATRICES, _MOST_PADDED_MATRICES = 8, 4
# IREE cuts padded dimensions only at their end, so a workgroup has all of one that no matrix divides.
_WIDEST_PADDED = 64
_FEWEST_WARPS, _MOST_WARPS = 2, 8
_DEPTHS = (64, 32, 16)
_ROWS_OF_GROUP, _COLUMNS_OF_GROUP = (8, 4, 2, 7, 1), (128, 64, 32)
_WIDTHS = (128, 64, 32, 16)
_TRIED = 4
# Time to load a row or column of a tile's step, relative to that of a product.
_LOADED = 32


@dataclass(frozen=True)
class Tiles:
    """Parts of the result's last three dimensions, or two if it has no more.

    Attributes:
        workgroup: part of a workgroup.
        own: part of a thread, or matrices of 16x8 numbers that a warp has.
        depth: a step of the reduction.
    """

    workgroup: tuple[int, ...]
    own: tuple[int, ...]
    depth: int


def thread_tiles(result: Sequence[int], tiled: int, gpu: CudaArchitecture) -> Iterator[Tiles]:
    """Tiles in f32; all divide the extents. Smaller workgroups are among them only if larger ones do not fill the GPU.

    Args:
        result: its dimensions, channels last.
        tiled: how many of the last ones have the same matrix on the right: three of an image, two of a batch of
            products, where a workgroup may have several batches.
        gpu: the GPU.
    """
    for across in _ACROSS:
        large = _threads(result, tiled, across, _MOST_THREADS)
        if large is None:
            continue
        yield large
        small = _threads(result, tiled, across, _FEWER_THREADS)
        if small is not None and small != large and _groups(result, large) < gpu.multiprocessors:
            yield small


def _threads(result: Sequence[int], tiled: int, across: int, most: int) -> Tiles | None:
    """Tiles of at most so many threads; None if none divide the result, or shared memory is too small."""
    *outer, width, channels = result[-3:]
    columns = _largest_divisor(width, _COLUMNS)
    if channels % (_CHANNELS * across) or columns * _CHANNELS < _FEWEST_SUMS:
        return None
    along = _largest_divisor(width // columns, most // across)
    own = along * columns, across * _CHANNELS
    # Batches of products have a matrix each on the right, rows of an image share it.
    fitting = _SHARED_BYTES // (sum(own) * DEPTH_OF_THREADS * _FLOAT_BYTES) if len(outer) + 2 > tiled else most
    rows = [_largest_divisor(size, max(1, min(fitting, most // (across * along)))) for size in outer]
    if math.prod((*rows, along, across)) % WARP:
        return None
    group = (*rows, *own)
    matrices = math.prod(group[:-tiled])
    if (math.prod(group[:-1]) + matrices * group[-1]) * DEPTH_OF_THREADS * _FLOAT_BYTES > _SHARED_BYTES:
        return None
    return Tiles(group, (*(1 for _ in rows), columns, _CHANNELS), DEPTH_OF_THREADS)


def matrix_tiles(result: Sequence[int], tiled: int, reduction: int, gpu: CudaArchitecture, dtype: str) -> list[Tiles]:
    """The tiles in f16 or bf16 that keep the GPU busiest, as far as workgroups and bytes tell.

    Args:
        result: its dimensions, channels last.
        tiled: how many of the last ones are divided: three of an image, two of a batch of products.
        reduction: extent of the reduction.
        gpu: the GPU.
        dtype: f16 or bf16. In batches of products of the latter, more than half of the matrices spill.
    """
    most = _MOST_MATRICES // 2 if dtype == BF16 and len(result) > tiled == 2 else _MOST_MATRICES
    depth = next((divisor for divisor in _DEPTHS if reduction % divisor == 0), None)
    if depth is None:
        return []
    ordered = sorted(
        _matrices(result[-tiled:], depth, most), key=lambda tiles: (_waves(result, tiles, gpu), tiles.workgroup)
    )
    return ordered[:_TRIED]


def pads_rows(result: Sequence[int]) -> bool:
    """Whether no matrices divide the result's last dimension but one, so that workgroups exceed it."""
    return result[-2] % ROWS != 0


def _matrices(result: Sequence[int], depth: int, most: int) -> Iterator[Tiles]:
    *outer, width, channels = result
    is_padded = pads_rows(result)
    if is_padded and width > _WIDEST_PADDED:
        return
    widths = [-(-width // ROWS) * ROWS] if is_padded else [candidate for candidate in _WIDTHS if width % candidate == 0]
    rows = [[row for row in _ROWS_OF_GROUP if extent % row == 0] for extent in outer]
    across = [column for column in _COLUMNS_OF_GROUP if channels % column == 0]
    for *high, wide, many in itertools.product(*rows, widths, across):
        group = (*high, wide, many)
        own = _of_warp(group, _MOST_PADDED_MATRICES if is_padded else most)
        if own is not None and (math.prod(group[:-1]) + many) * depth * _HALF_BYTES <= _SHARED_BYTES:
            yield Tiles(group, own, depth)


def _of_warp(group: Sequence[int], most: int) -> tuple[int, ...] | None:
    """Matrices of a warp along each dimension: nearly square, and so few that there are warps enough; None if too many
    warps remain."""
    *high, wide, many = group
    down, across = wide // ROWS, many // COLUMNS
    total = math.prod(high) * down * across
    for matrices in (most, most // 2):
        warps = total // matrices
        rows = math.gcd(down, 2)
        columns = math.gcd(across, matrices // rows)
        outer = [math.gcd(size, matrices // (columns * rows)) for size in high]
        if columns * rows * math.prod(outer) == matrices and _FEWEST_WARPS <= warps <= _MOST_WARPS:
            return (*outer, rows, columns)
    return None


def warps_of(tiles: Tiles) -> int:
    """Warps of a workgroup whose warps have matrices."""
    *high, wide, many = tiles.workgroup
    matrices = math.prod(high) * (wide // ROWS) * (many // COLUMNS)
    return matrices // math.prod(tiles.own)


def _groups(result: Sequence[int], tiles: Tiles) -> int:
    outer = math.prod(result[: len(result) - len(tiles.workgroup)])
    last = result[len(result) - len(tiles.workgroup) :]
    return outer * math.prod(-(-extent // part) for extent, part in zip(last, tiles.workgroup, strict=True))


def _waves(result: Sequence[int], tiles: Tiles, gpu: CudaArchitecture) -> int:
    """Time of the busiest multiprocessor, in products and loads of a step."""
    pixels, channels = math.prod(tiles.workgroup[:-1]), tiles.workgroup[-1]
    return -(-_groups(result, tiles) // gpu.multiprocessors) * (pixels * channels + _LOADED * (pixels + channels))


def _largest_divisor(extent: int, most: int) -> int:
    return next(index for index in range(min(extent, most), 0, -1) if extent % index == 0)
