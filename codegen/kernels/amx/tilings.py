"""Sizes of tiles worth trying with AMX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sartor.codegen.kernels.isa.amx import ROWS, TileElement
from sartor.codegen.kernels.loops.partition import long_workgroups, many_workgroups, many_workgroups_of_two
from sartor.codegen.kernels.loops.tiling import Sizes
from sartor.codegen.mlir.machine import Machine

_SUM_TILES = 4
_RESIDENT_BYTES = 1 << 20
# The part of an image that a workgroup copies should stay in the second-level cache, with filters and results.
_COPIED_BYTES = 1 << 19

# Products of a layer that takes less than the 10 µs for which IREE's workers wait for others.
_SHORT_PRODUCTS = 5 << 19


@dataclass(frozen=True)
class TileTiling(Sizes):
    """Sizes of tiles and blocks of tiles.

    Attributes:
        lines: rows of the result in a block.
        tiles: tiles along a row in a block.
        pixels: pixels of a tile.
        vectors: vectors of channels in a block, and in a panel.
        depth: numbers in a row of a tile.
        row_groups: workgroups that partition the blocks of rows.
        panel_groups: workgroups that partition the panels.
    """

    lines: int
    tiles: int
    pixels: int
    vectors: int
    depth: int
    row_groups: int
    panel_groups: int


@dataclass(frozen=True)
class TileWork:
    """The convolution or product that is cut into tiles.

    Attributes:
        rows: rows of the result.
        columns: columns of the result.
        channels: channels of the result.
        depth: numbers of a run.
        taps: runs of a window.
        positions_join: whether the pixels of all rows form one sequence.
        batches: number of independent products.
        is_copied: whether each workgroup copies the panels that it multiplies by.
    """

    rows: int
    columns: int
    channels: int
    depth: int
    taps: int
    positions_join: bool
    batches: int = 1
    is_copied: bool = False


def tile_tilings(work: TileWork, machine: Machine, element: TileElement) -> list[TileTiling]:
    """Sizes worth trying, best guess first."""
    if work.positions_join:
        work = replace(work, rows=1, columns=work.rows * work.columns)
    vectors = -(-work.channels // machine.lanes)
    tilings = [
        tiling
        for lines, tiles, wide in _blocks(work, vectors)
        for tiling in _shared_out(work, machine, element, (lines, tiles, wide))
    ]
    return list(dict.fromkeys(_keeping_workers_awake(tilings, work, machine)))


def _keeping_workers_awake(tilings: list[TileTiling], work: TileWork, machine: Machine) -> list[TileTiling]:
    """Drop tilings of one workgroup if the layer takes long: the other threads fall asleep meanwhile, and later layers
    pay for waking them, which does not show in the measurement of the layer alone."""
    products = work.batches * work.rows * work.columns * work.channels * work.depth * work.taps
    if machine.threads == 1 or products < _SHORT_PRODUCTS:
        return tilings
    return [tiling for tiling in tilings if tiling.row_groups * tiling.panel_groups * work.batches > 1] or tilings


def _blocks(work: TileWork, vectors: int) -> Iterator[tuple[int, int, int]]:
    """Lines, tiles along a row and vectors of blocks, best guess first."""
    along = -(-work.columns // ROWS)
    wide = min(vectors, 2)
    pairs = [(1, 2, wide)] if along > 1 else []
    if work.rows > 1:
        # Windows of neighbouring rows share more of what they read than those of neighbouring tiles.
        pairs.insert(0 if work.taps > 1 else len(pairs), (2, 1, wide))
    yield from pairs
    if along == 1 and work.rows == 1:
        yield 1, 1, min(vectors, _SUM_TILES)
        yield 1, 1, min(vectors, 6)
    elif vectors > 2:
        yield 1, 1, min(vectors, _SUM_TILES)


def _shared_out(
    work: TileWork, machine: Machine, element: TileElement, block: tuple[int, int, int]
) -> Iterator[TileTiling]:
    lines, tiles, vectors = block
    blocks = -(-work.columns // (ROWS * tiles))
    pixels = -(-work.columns // (blocks * tiles))
    panels = -(-work.channels // (vectors * machine.lanes))
    strips = blocks if work.rows == 1 else -(-work.rows // lines)
    sizes = (lines, tiles, pixels, vectors, tile_depth(work.depth, element))
    if work.is_copied:
        yield from _of_batches(work.batches, (strips, panels), sizes, machine)
        return
    resident = work.channels * work.depth * work.taps * 4 // element.group <= _RESIDENT_BYTES
    by_rows = TileTiling(*sizes, *_of_rows(work, (strips, panels), element, machine))
    by_panels = TileTiling(*sizes, 1, long_workgroups(panels, machine.threads))
    # Each workgroup copies what it reads, so a single thread gets a single one.
    many_panels = TileTiling(*sizes, 1, many_workgroups(panels, machine.threads) if machine.threads > 1 else 1)
    yield from (by_rows, by_panels) if resident else (many_panels, by_panels, by_rows)


def _of_rows(work: TileWork, extents: tuple[int, int], element: TileElement, machine: Machine) -> tuple[int, int]:
    """Workgroups along rows and along panels. Those of windows also copy the rows around their own, so there are
    few."""
    strips, panels = extents
    if work.taps == 1:
        return many_workgroups_of_two(strips, panels, machine.threads)
    copied = work.rows * work.columns * work.depth * 4 // element.group
    wanted = max(long_workgroups(strips, machine.threads), -(-copied // _COPIED_BYTES))
    return min(wanted, many_workgroups(strips, machine.threads)), 1


def _of_batches(
    batches: int, extents: tuple[int, int], sizes: tuple[int, int, int, int, int], machine: Machine
) -> Iterator[TileTiling]:
    """Tilings for independent products. Panels are partitioned if products are few; rows, whose workgroups copy the
    same panels again, only if panels are too few as well."""
    strips, panels = extents
    total = batches * strips * panels
    for wanted in (long_workgroups(total, machine.threads), many_workgroups(total, machine.threads)):
        of_panels = min(panels, -(-wanted // batches))
        yield TileTiling(*sizes, min(strips, -(-wanted // (batches * of_panels))), of_panels)


def tile_depth(depth: int, element: TileElement) -> int:
    """Numbers in a row of a tile: a divisor of the input channels if that fills most of it."""
    full = element.depth
    for size in range(full, full // 2, -element.group):
        if depth % size == 0:
            return size
    chunks = -(-depth // full)
    return -(-depth // (chunks * element.group)) * element.group
