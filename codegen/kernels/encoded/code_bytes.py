"""Codes of a panel as vectors of bytes that an instruction multiplies: taken out of words, or from a copy of them.

A vector holds the codes at one place of each byte of the words of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_parts import BlockParts
from sartor.codegen.kernels.encoded.packed_blocks import WORD_BITS, WORD_BYTES, PackedBlocks
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

CodeBytes = Callable[[Index, Index, int], list[ir.Value]]
"""The codes of each vector of a panel: by block, word of the block, and place in the word's bytes."""


def bytes_in_words(blocks: PackedBlocks, asm: Assembler, parts: BlockParts) -> CodeBytes:
    """Codes that are taken out of words where they are used."""
    kind = _bytes(asm)

    def codes(block: Index, word: Index, place: int) -> list[ir.Value]:
        words = parts.words(asm.add(parts.codes(block), asm.mul(word, blocks.word_step)))
        return [vector.bitcast(kind, each) for each in _at(blocks, asm, words, place)]

    return codes


@dataclass(frozen=True)
class CopiedCodes:
    """A copy of a panel's codes, a byte each: ``[block, word, place, width]`` in words of four bytes.

    Attributes:
        blocks: the weight in memory.
    """

    blocks: PackedBlocks

    @property
    def size(self) -> int:
        """Bytes of the copy."""
        return self.blocks.panel_step * self.blocks.encoding.codes_of_byte

    def write(self, asm: Assembler, memories: Sequence[ir.Value], panel: Panel, target: tuple[ir.Value, Index]) -> None:
        """Emit the copy of a panel.

        Args:
            asm: emits the code.
            memories: codes, scales and, if there are any, zero points.
            panel: the panel.
            target: memory of the copy, and the offset where it begins.
        """
        of, parts = self.blocks, BlockParts(self.blocks, asm, memories, panel)
        begin, places = parts.codes(0), of.encoding.codes_of_byte

        def word(number: Index) -> None:
            words = parts.words(asm.add(begin, asm.mul(number, of.word_step)))
            into = asm.add(target[1], asm.mul(number, of.word_step * places))
            for place in range(places):
                for index, codes in enumerate(_at(of, asm, words, place)):
                    offset = asm.add(into, place * of.word_step + index * of.lanes * WORD_BYTES)
                    asm.store_words(codes, target[0], offset)

        asm.repeat(0, of.encoding.blocks * of.words, 1, word)

    def read(self, asm: Assembler, panel: Panel, source: tuple[ir.Value, Index]) -> CodeBytes:
        """Codes of the copy that begins at an offset of a memory."""
        of, kind, step = self.blocks, _bytes(asm), self.blocks.word_step * self.blocks.encoding.codes_of_byte

        def codes(block: Index, word: Index, place: int) -> list[ir.Value]:
            first = asm.add(source[1], asm.mul(block, of.words * step), asm.mul(word, step), place * of.word_step)
            offsets = (asm.add(first, index * of.lanes * WORD_BYTES) for index in range(panel.vectors))
            return [asm.load_words(source[0], offset, kind) for offset in offsets]

        return codes


def _at(blocks: PackedBlocks, asm: Assembler, words: Sequence[ir.Value], place: int) -> list[ir.Value]:
    """The codes at one place of each byte of words, in words."""
    bits = blocks.encoding.bits
    if bits == 8:
        return list(words)
    mask = _splat(asm, ((1 << bits) - 1) * 0x01010101)
    shifted = [arith.shrui(each, _splat(asm, place * bits)) for each in words] if place else words
    return [arith.andi(each, mask) for each in shifted]


def _bytes(asm: Assembler) -> ir.VectorType:
    return ir.VectorType.get([asm.lanes * WORD_BYTES], ir.IntegerType.get_signless(8))


def _splat(asm: Assembler, number: int) -> ir.Value:
    return asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(WORD_BITS), number))
