"""Rows, whose number is known only when code runs, in register tiles that are nearly of one height.

A tile of few rows takes as long as one of several: it reads as much of the other factor, and too few sums hide the
latency of multiply-adds. So the rows behind whole tiles are no tile of their own, but all tiles share what is missing.
"""

from __future__ import annotations

from typing import NamedTuple

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index


class CutParts(NamedTuple):
    """Some tiles of a cut.

    Attributes:
        low: rows of a lower tile.
        taller: the first row of tiles with a row more, and the end.
        lower: the same of lower tiles.
    """

    low: Index
    taller: tuple[Index, Index]
    lower: tuple[Index, Index]

    def of_height(self, asm: Assembler, height: int) -> tuple[Condition, tuple[Index, Index]]:
        """Whether tiles may have this height, and the first row and the end of those that have it then."""
        is_low, is_tall = asm.equal(self.low, height), asm.equal(self.low, height - 1)
        first, end = (asm.chosen(is_low, *bounds) for bounds in zip(self.lower, self.taller, strict=True))
        return asm.any_of(is_low, is_tall), (first, end)

    def moved(self, asm: Assembler, distance: Index) -> CutParts:
        """The same tiles of rows that lie further behind."""
        taller, lower = ((asm.add(first, distance), asm.add(end, distance)) for first, end in (self.taller, self.lower))
        return CutParts(self.low, taller, lower)


class RowCut(NamedTuple):
    """How rows are cut into tiles.

    Attributes:
        tiles: how many there are.
        low: rows of a lower tile.
        taller: how many tiles have a row more; they are the first.
    """

    tiles: Index
    low: Index
    taller: Index

    def row(self, asm: Assembler, tile: Index) -> Index:
        """The first row of a tile."""
        return asm.add(asm.times(tile, self.low), asm.minimum(tile, self.taller))

    def parts(self, asm: Assembler, tiles: tuple[Index, Index]) -> CutParts:
        """The tiles of a range, given by the first and the end."""
        first, end = tiles
        taller = self.row(asm, asm.minimum(first, self.taller)), self.row(asm, asm.minimum(end, self.taller))
        lower = self.row(asm, asm.maximum(first, self.taller)), self.row(asm, asm.maximum(end, self.taller))
        return CutParts(self.low, taller, lower)


def cut_rows(asm: Assembler, rows: Index, most: int) -> RowCut:
    """Cut rows into as few tiles of at most ``most`` rows as hold them."""
    tiles = asm.divide_up(rows, most)
    low, taller = asm.divide(rows, asm.maximum(tiles, 1))
    return RowCut(tiles, low, taller)
