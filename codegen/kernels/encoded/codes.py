"""Turns vectors of words that hold codes of some bits into vectors of f32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.encoded.packed_blocks import WORD_BITS
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm

# Instructions that look each element's low bits up in a table of as many elements as a vector has: by the number of
# these, the CPU's feature and the instruction.
_LOOK_UPS = {16: ("avx512f", "llvm.x86.avx512.permvar.sf.512"), 8: ("avx2", "llvm.x86.avx2.permps")}
# Of codes in planes, the bits that lie apart from the highest; and of a byte.
_LOW_BITS, _BYTE = 2, 8


@dataclass(frozen=True)
class Codes:
    """Codes of ``bits`` bits, lowest first, in words.

    Attributes:
        bits: of a code.
        middle: what is taken from a code where a table gives its value.
    """

    bits: int
    middle: int

    def origin(self, asm: Assembler) -> int:
        """The code for which ``number`` gives zero."""
        return self.middle if self._has_table(asm) else 0

    def number(self, asm: Assembler, unit: Sequence[ir.Value], index: int) -> ir.Value:
        """The codes at ``index`` of vectors of words that hold them, minus the origin, as a vector of f32."""
        shifted, is_masked = self._shifted(asm, unit, index)
        if self._has_table(asm):
            # The instruction takes no notice of higher bits, and entries are repeated for those between.
            return llvm.call_intrinsic(
                asm.vector_type(ir.F32Type.get()), _LOOK_UPS[asm.lanes][1], [self._table(asm), shifted], [], []
            )
        if not is_masked:
            shifted = arith.andi(shifted, _splat(asm, (1 << self.bits) - 1))
        # Codes have no sign bit, so that conversions of signed words serve.
        return arith.sitofp(asm.vector_type(ir.F32Type.get()), shifted)

    def _shifted(self, asm: Assembler, unit: Sequence[ir.Value], index: int) -> tuple[ir.Value, bool]:
        """Words whose lowest bits are the codes at ``index``, and whether all others are zero."""
        if len(unit) == 1:
            distance = index * self.bits
            return moved(asm, unit[0], distance), distance + self.bits == WORD_BITS
        *low, high = unit
        word, code = divmod(index, WORD_BITS // _LOW_BITS)
        byte, place = divmod(code, _BYTE // _LOW_BITS)
        lower = arith.andi(moved(asm, low[word], code * _LOW_BITS), _splat(asm, (1 << _LOW_BITS) - 1))
        distance = byte * _BYTE + word * (_BYTE // _LOW_BITS) + place - _LOW_BITS
        # A table takes no notice of bits above the highest.
        mask = ~((1 << _LOW_BITS) - 1) if self._has_table(asm) else 1 << _LOW_BITS
        return arith.ori(lower, arith.andi(moved(asm, high, distance), _splat(asm, mask))), True

    def _has_table(self, asm: Assembler) -> bool:
        feature, _ = _LOOK_UPS.get(asm.lanes, ("", ""))
        return bool(feature) and asm.has(feature) and 1 << self.bits <= asm.lanes

    def _table(self, asm: Assembler) -> ir.Value:
        values = (np.arange(asm.lanes) % (1 << self.bits) - self.middle).astype(np.float32)
        return asm.constant_vector(values)


def moved(asm: Assembler, words: ir.Value, distance: int) -> ir.Value:
    """Words whose bits are moved down, or up if ``distance`` is negative."""
    if distance < 0:
        return arith.shli(words, _splat(asm, -distance))
    return arith.shrui(words, _splat(asm, distance)) if distance else words


def _splat(asm: Assembler, number: int) -> ir.Value:
    return asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(WORD_BITS), number))
