"""Loads codes, scales and zero points of a panel's blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.packed_blocks import BYTE_BITS, WORD_BITS, WORD_BYTES, PackedBlocks
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.mlir.iree_compiler import arith, ir

# Units of a block that are written out at once.
_WRITTEN_OUT = 4
# Bytes from codes that are read to those that are fetched meanwhile. The hardware's prefetchers follow a core that
# computes for each line too late.
_AHEAD = 8192
_LINE = 64
# Register tiles for which a panel is read from memory about as often as from a cache.
_FEW_TILES = 2

Unit = Sequence[ir.Value]
"""Vectors of the words of some adjacent rows: one, or three of codes that lie in planes."""

Step = Callable[[Index, list[ir.Value]], list[ir.Value]]
"""Emits the code of a unit, given its number and the carried values; returns the new ones."""


@dataclass(frozen=True)
class Turn:
    """When a register tile reads a panel.

    Attributes:
        tiles: register tiles of a workgroup that read the panel.
        number: that of the tile.
    """

    tiles: int = 1
    number: Index = 0

    @property
    def is_far(self) -> bool:
        """Whether the panel comes from memory; else tiles before fetched it, each an equal part."""
        return self.tiles <= _FEW_TILES


class BlockParts:
    """A panel of a weight while code that reads it is emitted.

    Args:
        blocks: the weight in memory.
        asm: emits the code.
        memories: codes, scales and, if there are any, zero points.
        panel: the panel.
        turn: when a register tile reads it. Of few tiles each fetches what it reads itself soon, of more a part of the
            next panel.
    """

    def __init__(
        self, blocks: PackedBlocks, asm: Assembler, memories: Sequence[ir.Value], panel: Panel, turn: Turn
    ) -> None:
        self._blocks = blocks
        self._asm = asm
        self._codes, self._scales, *points = memories
        self._points = points[0] if points else None
        self._panel = panel
        self._turn = turn

    @property
    def has_points(self) -> bool:
        """Whether blocks have zero points of their own."""
        return self._points is not None

    def fetch_first(self) -> None:
        """Fetch the codes and scales that are read before any that were fetched ahead."""
        asm, of = self._asm, self._blocks
        first, size = self.codes(0), min(_AHEAD, of.panel_step)
        asm.repeat(0, size, _LINE, lambda place: asm.prefetch_stream(self._codes, asm.add(first, place)))
        for block in range(min(max(1, _AHEAD // of.block_step), of.encoding.blocks)):
            self._fetch_scales(block)

    def over_units(self, count: int, carried: list[ir.Value], step: Step) -> list[ir.Value]:
        """Emit ``step`` for the numbers of a block's first ``count`` units, some of which are written out at once.

        LLVM moves all that is fetched ahead to the beginning of what is written out. The lines of several units are
        more than a core waits for at a time, and what it loads next waits for them, too.
        """
        most = 1 if self._turn.is_far else min(_WRITTEN_OUT, max(count, 1))
        written = next(index for index in range(most, 0, -1) if count % index == 0)

        def some(number: Index, values: list[ir.Value]) -> list[ir.Value]:
            for place in range(written):
                values = step(self._asm.add(number, place), values)
            return values

        return self._asm.loop(0, count, written, carried, some)

    def codes(self, block: Index) -> Index:
        """Offset of a block's first word."""
        asm, of = self._asm, self._blocks
        return asm.add(asm.mul(self._panel.index, of.panel_bytes), asm.mul(block, of.block_step))

    def units(self, offset: Index) -> list[Unit]:
        """The unit of each vector of the panel from ``offset`` on."""
        asm, kind, of = self._asm, self._asm.vector_type(ir.IntegerType.get_signless(WORD_BITS)), self._blocks
        for word in range(of.words_of_unit):
            self._fetch(self._codes, asm.add(offset, word * of.word_step, _AHEAD), WORD_BYTES)
        return [
            [
                asm.load_words(self._codes, asm.add(offset, word * of.word_step, vector * of.lanes * WORD_BYTES), kind)
                for word in range(of.words_of_unit)
            ]
            for vector in range(self._panel.vectors)
        ]

    def scales(self, block: Index) -> list[ir.Value]:
        """The scales of a block, for each vector of the panel."""
        self._fetch_scales(self._later(block))
        self._fetch_next(block)
        if self._blocks.has_scales:
            return [self._asm.load_floats(self._codes, offset) for offset in self._offsets_behind(block)]
        return [self._asm.load(self._scales, offset, self._asm.lanes) for offset in self._offsets(block)]

    def stored_points(self, block: Index) -> list[ir.Value] | None:
        """The zero points of a block, in f32; None if it has none of its own."""
        if self._points is None:
            return None
        self._fetch(self._points, self._offsets(self._later(block))[0], 1)
        return [self._point(self._points, offset) for offset in self._offsets(block)]

    def _fetch_scales(self, block: Index) -> None:
        """Fetch the scales of a block."""
        if self._blocks.has_scales:
            self._fetch(self._codes, self._offsets_behind(block)[0], WORD_BYTES)
        else:
            self._fetch(self._scales, self._offsets(block)[0], 1)

    def _fetch_next(self, block: Index) -> None:
        """Fetch the tile's part of the next panel, as many lines with each block."""
        if self._turn.is_far:
            return
        asm, of = self._asm, self._blocks
        number = asm.add(asm.mul(self._turn.number, of.encoding.blocks), block)
        parts = [(self._codes, asm.mul(self._panel.index, of.panel_bytes), of.panel_bytes)]
        for memory in () if of.has_scales else (self._scales, self._points):
            if memory is not None:
                parts.append((memory, asm.mul(self._panel.index, of.panel_scales), of.panel_scales))
        for memory, begin, length in parts:
            line = _line_of(memory)
            together = -(-length // (line * of.encoding.blocks * self._turn.tiles))
            last = -(-length // (line * together)) - 1
            first = asm.add(begin, length, asm.mul(asm.minimum(number, last), together * line))
            for place in range(together):
                asm.prefetch(memory, asm.add(first, place * line))

    def _later(self, block: Index) -> Index:
        """The number of the block whose scales are fetched while those of ``block`` are read."""
        return self._asm.add(block, max(1, _AHEAD // self._blocks.block_step))

    def _fetch(self, memory: ir.Value, first: Index, size: int) -> None:
        """Fetch ``size`` elements of each column of the panel, from ``first`` on."""
        if self._turn.is_far:
            for place in range(0, self._panel.vectors * self._asm.lanes * size, _line_of(memory)):
                self._asm.prefetch_stream(memory, self._asm.add(first, place))

    def _offsets(self, block: Index) -> list[Index]:
        asm, of = self._asm, self._blocks
        first = asm.add(asm.mul(self._panel.index, of.panel_scales), asm.mul(block, of.width))
        return [asm.add(first, vector * of.lanes) for vector in range(self._panel.vectors)]

    def _offsets_behind(self, block: Index) -> list[Index]:
        """Where the scales of a block lie that follow the panel's codes."""
        asm, of = self._asm, self._blocks
        first = asm.add(
            asm.mul(self._panel.index, of.panel_bytes), of.panel_step, asm.mul(block, of.width * WORD_BYTES)
        )
        return [asm.add(first, vector * of.lanes * WORD_BYTES) for vector in range(self._panel.vectors)]

    def _point(self, memory: ir.Value, offset: Index) -> ir.Value:
        asm = self._asm
        if not isinstance(ir.MemRefType(memory.type).element_type, ir.IntegerType):
            return asm.load(memory, offset, asm.lanes)
        word = asm.vector_type(ir.IntegerType.get_signless(WORD_BITS))
        loaded = arith.extui(word, asm.load_as_stored(memory, offset, asm.lanes))
        return arith.sitofp(asm.vector_type(ir.F32Type.get()), loaded)


def _line_of(memory: ir.Value) -> int:
    """Elements of a memory in a cache line."""
    return _LINE * BYTE_BITS // int(ir.MemRefType(memory.type).element_type.width)
