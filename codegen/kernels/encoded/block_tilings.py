"""Sizes of tiles worth trying for products by weights in blocks of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.loops.partition import long_workgroups, many_workgroups_of_two
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import chunk, register_shapes
from sartor.codegen.mlir.machine import Machine

# Vectors of a panel. For one row long runs of adjacent words are read fastest, if registers hold the sums; with more
# rows, each word that is decoded should serve as many as the registers hold.
_WIDTHS_OF_ROW, _FEW_REGISTERS, _WIDTHS_OF_FEW = (8, 2, 4, 1), 16, (4, 2, 8, 1)
_WIDTHS = (4, 2, 1)
_MOST_ROWS = 8
# Registers of a tile beside sums: for each vector a scale, words and an element, or words and codes in bytes; and the
# table of codes, and a number of a row. Totals of integer sums are needed at the end of a block only.
_OF_VECTOR, _OF_VECTOR_IN_BYTES, _OTHERS, _SUMS_OF_WORDS = 3, 2, 2, 2
# Register tiles that are tried for panels that are decoded first.
_TRIED = 3
LEAST_ROWS = 8
"""Fewer rows are a register tile or two, for which codes are better decoded in registers."""


def tilings_of_codes(shape: MatmulShape, machine: Machine, *, in_bytes: bool = False, sums: int = 1) -> list[Tiling]:
    """Sizes for codes that are decoded in registers, best guess first; ``in_bytes`` for products of integers.

    ``sums`` is how many registers each vector of results may take at most.
    """
    rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
    tilings = []
    for wide in _widths(rows, vectors, machine):
        if wide > vectors and wide > 1:
            continue
        free = machine.registers - _OTHERS - (_OF_VECTOR_IN_BYTES if in_bytes else _OF_VECTOR) * wide
        most = 1 if rows == 1 else min(rows, _MOST_ROWS, max(1, min(free, machine.registers // sums) // wide))
        tile = _tile_rows(rows, most, machine)
        tilings.append(Tiling(1, tile, wide, *_workgroups(rows // chunk(rows, tile), -(-vectors // wide), machine), 1))
    return list(dict.fromkeys(tilings))


def _tile_rows(rows: int, most: int, machine: Machine) -> int:
    """Rows of a register tile, at most as many as given; on a GPU rather such as divide all of them, so that subgroups
    share the rows."""
    dividing = max(count for count in range(1, most + 1) if rows % count == 0)
    return dividing if machine.in_subgroups and 2 * dividing > most else -(-rows // -(-rows // most))


def _widths(rows: int, vectors: int, machine: Machine) -> Sequence[int]:
    """Vectors of a panel that are tried, best guess first."""
    if machine.in_subgroups:
        # Several save loads, as long as there is work for all of the device.
        busy = [wide for wide in _WIDTHS if -(-vectors // wide) * -(-rows // _MOST_ROWS) >= machine.threads]
        return busy or (1,)
    if rows > 1:
        return _WIDTHS
    return _WIDTHS_OF_FEW if machine.registers <= _FEW_REGISTERS else _WIDTHS_OF_ROW


def _workgroups(lines: int, panels: int, machine: Machine) -> tuple[int, int]:
    """Workgroups along lines of register tiles, and along panels; on a CPU each computes all lines of its panels, which
    come from memory once."""
    if machine.in_subgroups:
        return many_workgroups_of_two(lines, panels, machine.threads)
    return 1, long_workgroups(panels, machine.threads)


def tilings_of_dots(shape: MatmulShape, machine: Machine, sums: int = 1) -> list[Tiling]:
    """Sizes for rows that every workgroup rounds, best guess first: if one thread runs all, one workgroup is tried
    first; with more threads workgroups that partition the rows are tried, too. ``sums`` as of ``tilings_of_codes``."""
    tilings = tilings_of_codes(shape, machine, in_bytes=True, sums=sums)
    if machine.threads == 1:
        return list(dict.fromkeys([*(replace(tiling, panel_groups=1) for tiling in tilings[:2]), *tilings]))
    return list(dict.fromkeys([tilings[0], *tilings_by_rows(shape, tilings[:2], machine), *tilings[1:]]))


def tilings_of_words(shape: MatmulShape, machine: Machine) -> list[Tiling]:
    """Sizes for rows that are rounded to 16 bits.

    Both sums of a block and totals stay in registers, as a block has few steps by pairs; and panels are the widest:
    with others each row's numbers, of twice the bytes, are read more often.
    """
    listed = tilings_of_dots(shape, machine, _SUMS_OF_WORDS)
    widest = max(tiling.vectors for tiling in listed)
    return [tiling for tiling in listed if tiling.vectors == widest]


def refused_words(shape: MatmulShape) -> Rejected | None:
    """Why rows are not rounded to 16 bits; None if they may be."""
    if (shape.rows or 1) < LEAST_ROWS:
        return Rejected("with so few rows sums in f32 take no longer than reading the weight")
    return None


def tilings_by_rows(shape: MatmulShape, tilings: Sequence[Tiling], machine: Machine) -> list[Tiling]:
    """The sizes with workgroups that partition the rows, of those that leave each thread some."""
    rows, tilings_found = shape.rows or 1, []
    for tiling in tilings:
        lines = rows // chunk(rows, tiling.columns)
        if lines >= machine.threads:
            tilings_found.append(replace(tiling, row_groups=long_workgroups(lines, machine.threads), panel_groups=1))
    return tilings_found


def refused_panels(shape: MatmulShape) -> Rejected | None:
    """Why panels are not decoded first; None if they may be."""
    return Rejected("its rows are too few to decode the weight for") if (shape.rows or 1) < LEAST_ROWS else None


def tilings_of_panels(shape: MatmulShape, machine: Machine) -> list[Tiling]:
    """Sizes for panels that are decoded first, best guess first. Workgroups partition panels; if one thread runs all,
    there is one, as each has a workspace."""
    vectors, tilings_found = -(-shape.columns // machine.lanes), []
    shapes = register_shapes(1, shape.rows or 1, vectors, shape.depth, machine)
    # What decodes a panel keeps registers, too. With all of them in use a sum was stored and loaded in each step.
    held = [of for of in shapes if (of.columns + 1) * of.vectors + _OTHERS <= machine.registers] or shapes
    for of in held[:_TRIED]:
        groups = 1 if machine.threads == 1 else long_workgroups(-(-vectors // of.vectors), machine.threads)
        tilings_found.append(Tiling(1, of.columns, of.vectors, 1, groups, of.unroll))
    return list(dict.fromkeys(tilings_found))
