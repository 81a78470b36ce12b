"""How a weight in blocks of integers lies in memory: panels of columns, each from its first row to its last.

A word of 32 bits holds the codes of some adjacent rows of one column, as in the model. The words of a panel's columns
lie side by side, so that a vector register takes those of as many columns, and shifts alone lead from row to row. Codes
of 3 bits take three words for 32 rows: two of their lower bits, and one of the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.encoding import IN_PLANES, BlockEncoding
from sartor.codegen.ir.packing import Packing, PadTo, Reshape, Transpose, cut

WORD_BYTES, WORD_BITS, BYTE_BITS = 4, 32, 8
_LOW_BITS, _LOW_WORDS = 2, 2


@dataclass(frozen=True)
class PackedBlocks:
    """Offsets in the packed parts of a weight.

    Attributes:
        encoding: of the weight.
        lanes: columns of a vector.
        vectors: vectors of a panel.
        has_scales: whether the scales of a panel follow its codes, in bytes of the same memory.
    """

    encoding: BlockEncoding
    lanes: int
    vectors: int
    has_scales: bool = False

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.lanes * self.vectors

    @property
    def panels(self) -> int:
        """Panels that hold all columns; the last is filled up with zeros."""
        return -(-self.encoding.columns // self.width)

    @property
    def has_planes(self) -> bool:
        """Whether the highest bit of codes is in words of its own."""
        return self.encoding.bits == IN_PLANES

    @property
    def low_bits(self) -> int:
        """Bits of a code in the words that hold all of it, or its lower bits."""
        return _LOW_BITS if self.has_planes else self.encoding.bits

    @property
    def codes_of_word(self) -> int:
        """Rows whose codes, or lower bits, are in a word."""
        return WORD_BITS // self.low_bits

    @property
    def words_of_unit(self) -> int:
        """Words that are read together."""
        return _LOW_WORDS + 1 if self.has_planes else 1

    @property
    def codes_of_unit(self) -> int:
        """Rows whose codes are in these."""
        return self.codes_of_word * (_LOW_WORDS if self.has_planes else 1)

    @property
    def units(self) -> int:
        """Such words of a column in a block, counted together."""
        return self.words // self.words_of_unit

    @property
    def unit_step(self) -> int:
        """Bytes from these words of some rows of a panel to those of the next rows."""
        return self.words_of_unit * self.word_step

    @property
    def words(self) -> int:
        """Words of a column in a block."""
        return self.encoding.block_bytes // WORD_BYTES

    @property
    def word_step(self) -> int:
        """Bytes from the words of some rows of a panel to those of the next rows."""
        return self.width * WORD_BYTES

    @property
    def block_step(self) -> int:
        """Bytes from a block's codes to those of the next block."""
        return self.words * self.word_step

    @property
    def panel_step(self) -> int:
        """Bytes of a panel's codes."""
        return self.encoding.blocks * self.block_step

    @property
    def panel_bytes(self) -> int:
        """Bytes from a panel's codes to those of the next panel, with what lies between."""
        return self.panel_step + self.has_scales * self.panel_scales * WORD_BYTES

    @property
    def panel_scales(self) -> int:
        """Scales, and zero points, of a panel."""
        return self.encoding.blocks * self.width

    def packings(self, parts: int) -> Sequence[Packing]:
        """How codes, scales and, if there are three parts, zero points are packed."""
        of, columns = self.encoding, self.panels * self.width
        words = of.blocks * self.words
        codes = (
            Reshape((of.columns, words, WORD_BYTES)),
            PadTo((columns, words, WORD_BYTES)),
            Reshape((self.panels, self.width, words, WORD_BYTES)),
            Transpose((0, 2, 1, 3)),
        )
        scales = cut(((self.panels, self.width), (of.blocks,)), (0, 2, 1))
        return [Packing(codes), *[Packing(scales)] * (parts - 1)]
