"""Sizes of tiles worth trying for products by weights in blocks of integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.loops.partition import long_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import register_shapes
from sartor.codegen.mlir.machine import Machine

# Vectors of a panel. One row needs no more than hide latencies; with more rows, each word that is decoded should serve
# as many as the registers hold.
_WIDTHS_OF_ROW = (4, 2, 8, 1)
_WIDTHS = (4, 2, 1)
_MOST_ROWS = 8
# Registers of a tile beside sums: for each vector a scale, words and an element, or words and codes in bytes; and the
# table of codes, and a number of a row. Totals of integer sums are needed at the end of a block only.
_OF_VECTOR, _OF_VECTOR_IN_BYTES, _OTHERS = 3, 2, 2
# Of panels that are decoded first: register tiles that are tried, and vectors of a panel of bytes.
_TRIED = 3
_WIDTHS_IN_BYTES = (4, 2, 3)
# Fewer rows are a register tile or two, for which codes are better decoded in registers.
_LEAST_ROWS = 8


def tilings_of_codes(shape: MatmulShape, machine: Machine, *, in_bytes: bool = False) -> list[Tiling]:
    """Sizes for codes that are decoded in registers, best guess first; ``in_bytes`` for products of integers."""
    rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
    widths: Sequence[int] = _WIDTHS_OF_ROW if rows == 1 else _WIDTHS
    found = []
    for wide in widths:
        if wide > vectors and wide > 1:
            continue
        free = machine.registers - _OTHERS - (_OF_VECTOR_IN_BYTES if in_bytes else _OF_VECTOR) * wide
        most = 1 if rows == 1 else min(rows, _MOST_ROWS, max(1, free // wide))
        tile = -(-rows // -(-rows // most))
        panels = -(-vectors // wide)
        found.append(Tiling(1, tile, wide, 1, long_workgroups(panels, machine.threads), 1))
    return list(dict.fromkeys(found))


def refused_panels(shape: MatmulShape) -> Rejected | None:
    """Why panels are not decoded first; None if they may be."""
    return Rejected("its rows are too few to decode the weight for") if (shape.rows or 1) < _LEAST_ROWS else None


def tilings_of_panels(shape: MatmulShape, machine: Machine, *, in_bytes: bool = False) -> list[Tiling]:
    """Sizes for panels that are decoded first, best guess first; ``in_bytes`` for products of integers."""
    rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
    if in_bytes:
        widths = [wide for wide in _WIDTHS_IN_BYTES if wide <= vectors] or [1]
        tiles = [(balanced(rows, (machine.registers - _OTHERS - wide) // wide), wide, 1) for wide in widths]
    else:
        shapes = register_shapes(1, rows, vectors, shape.depth, machine)
        tiles = [(of.columns, of.vectors, of.unroll) for of in shapes[:_TRIED]]
    return _by_panels(tiles, vectors, machine)


def _by_panels(tiles: Iterable[tuple[int, int, int]], vectors: int, machine: Machine) -> list[Tiling]:
    """Tilings by rows, vectors and unrolled steps of register tiles, whose workgroups partition panels; all in one
    workgroup if one thread runs them, as each has a workspace."""
    found: Sequence[Tiling] = [
        Tiling(1, rows, wide, 1, long_workgroups(-(-vectors // wide), machine.threads), unroll)
        for rows, wide, unroll in tiles
    ]
    if machine.threads == 1:
        found = [replace(tiling, panel_groups=1) for tiling in found]
    return list(dict.fromkeys(found))
