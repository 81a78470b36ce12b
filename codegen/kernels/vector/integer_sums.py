"""Convert sums of products of integers to real numbers: correct for the image's zero point, and scale by channel.

Some instructions take the image's numbers without a sign, so a bias of 128 is added to them. A sum is then too large by
the sum of its filters times bias plus zero point. If part of a window lies in the padding, only the taps on the image
count. So filters come with a summed-area table over their taps (Crow, Summed-Area Tables for Texture Mapping, 1984):
four of its entries give the sum over any rectangle of taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.rounded_numbers import dequantised
from sartor.codegen.kernels.loops.nest import Nest, Tile, touching_rows
from sartor.codegen.kernels.loops.tiles import TileRun
from sartor.codegen.mlir.iree_compiler import arith, ir

_FLOAT_BYTES = 4
_WORD = 32


class _Range(NamedTuple):
    """Taps that touch the image along one dimension: first and end."""

    first: Index
    end: Index


@dataclass(frozen=True)
class IntegerSums:
    """Layout of a panel of filters, which is followed by its scales and its sums.

    Attributes:
        numbers: bytes of a panel before the scales.
        panel: bytes of a panel.
        taps: rows and columns of a filter; None if it has a single sum instead of a table.
        bias: what is added to the image's numbers before they are multiplied.
    """

    numbers: int
    panel: int
    taps: tuple[int, int] | None
    bias: int

    def starts(self, asm: Assembler, nest: Nest, memories: tuple[ir.Value, ir.Value], tile: Tile) -> list[ir.Value]:
        """Emit the values that the integer sums of a tile start from, which correct for bias and zero point.

        Args:
            asm: emits the code.
            nest: the loops around the tile.
            memories: the image and the filters.
            tile: the tile.
        """
        words = asm.vector_type(ir.IntegerType.get_signless(_WORD))
        bias = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), -float(self.bias)))
        shift = arith.fptosi(words, arith.subf(bias, asm.scale_of(memories[0]).zero))
        nothing = asm.splat(ir.IntegerAttr.get(words.element_type, 0))
        table = _Table(self, asm, nest, memories[1], tile)
        started = []
        for tile_vector in tile.tile_vectors(nest.lanes):
            weight = table.sum(tile_vector.line, tile_vector.column, tile_vector.vector)
            started.append(nothing if weight is None else arith.muli(arith.fptosi(words, weight), shift))
        return started

    def reals(
        self,
        asm: Assembler,
        nest: Nest,
        memories: tuple[ir.Value, ir.Value],
        tile: Tile,
        sums: Sequence[ir.Value],
        starts: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Emit the real values of the sums of a tile, with the layer's initial values added.

        Args:
            asm: emits the code.
            nest: the loops around the tile.
            memories: the image and the filters.
            tile: the tile.
            sums: vectors of integers.
            starts: the layer's initial values, vectors of f32.
        """
        step = asm.scale_of(memories[0]).step
        with asm.outside(tile.depth if nest.loads_early else asm.depth):
            table = _Table(self, asm, nest, memories[1], tile)
            factors = [arith.mulf(table.scale(index), step) for index in range(tile.panel.vectors)]
        reals_of_vectors = []
        for tile_vector, total, start in zip(tile.tile_vectors(nest.lanes), sums, starts, strict=True):
            # Pixels that start from the same value share the code that divides it.
            first = starts[tile_vector.vector] if nest.epilogue.starts_alike else start
            reals_of_vectors.append(dequantised(asm, total, first, factors[tile_vector.vector]))
        return reals_of_vectors


class _Table:
    """Reads the scales and sums that follow a panel's filters."""

    def __init__(self, of: IntegerSums, asm: Assembler, nest: Nest, filters: ir.Value, tile: Tile) -> None:
        self._of, self._asm, self._nest, self._filters, self._tile = of, asm, nest, filters, tile
        self._start = asm.add(asm.mul(tile.panel.index, of.panel), of.numbers)
        self._sums: dict[tuple[_Range, _Range, int], ir.Value | None] = {}
        self._any_line = self._rows_of_any_line() if tile.lines is None and of.taps is not None else None

    def scale(self, number: int) -> ir.Value:
        """The scales of a vector of channels."""
        return self._load(0, number)

    def sum(self, line: int, column: int, number: int) -> ir.Value | None:
        """Sums of the filters of a vector of channels over the taps that touch the image at a pixel of the tile; None
        if no tap does."""
        if self._of.taps is None:
            return self._load(1, number)
        rows, columns = self._rows(line), self._columns(column)
        key = rows, columns, number
        if key not in self._sums:
            self._sums[key] = self._rectangle(rows, columns, number)
        return self._sums[key]

    def _rectangle(self, rows: _Range, columns: _Range, number: int) -> ir.Value | None:
        if columns.end == 0 or rows.end == 0:
            return None
        last = self._strip(rows.end, columns, number)
        return last if rows.first == 0 else arith.subf(last, self._strip(rows.first, columns, number))

    def _strip(self, row: Index, columns: _Range, number: int) -> ir.Value:
        """The sum over all rows above ``row``, in a range of columns."""
        right = self._entry(row, columns.end, number)
        return right if columns.first == 0 else arith.subf(right, self._entry(row, columns.first, number))

    def _entry(self, row: Index, column: Index, number: int) -> ir.Value:
        _, width = self._of.taps or (0, 0)
        return self._load(self._asm.add(1, self._asm.mul(row, width + 1), column), number)

    def _load(self, entry: Index, number: int) -> ir.Value:
        """A vector of a table's entry, which has a number for each channel of the panel."""
        asm, lanes = self._asm, self._nest.lanes
        size = self._nest.tiling.vectors * lanes * _FLOAT_BYTES
        offset = asm.add(self._start, asm.mul(entry, size), number * lanes * _FLOAT_BYTES)
        return asm.load_floats(self._filters, offset)

    def _columns(self, column: int) -> _Range:
        return _touching(self._tile.run, column)

    def _rows(self, line: int) -> _Range:
        if self._tile.lines is not None:
            return _touching(self._tile.lines, line)
        if self._any_line is None:
            raise RejectionError("a filter with a single sum has no rows of taps")
        return self._any_line

    def _rows_of_any_line(self) -> _Range:
        first, end = touching_rows(self._asm, self._nest.rows, self._tile)
        end = self._asm.maximum(end, 0)
        return _Range(self._asm.minimum(first, end), end)


def _touching(run: TileRun, pixel: int) -> _Range:
    """Taps that touch the image at a pixel of a tile."""
    segments = [segment for segment in run.segments if pixel in segment.pixels]
    return _Range(segments[0].first, segments[-1].end) if segments else _Range(0, 0)
