"""Winograd's method in exact integers: tiles of 8 bits are encoded to 16 bits, and multiplied in pairs.

Pixels minus their zero point become numbers of 11 bits with the points 0, 1 and -1, by sums and differences alone, and
of at most 16 bits with 2 and -2. Filters are transformed without fractions, so sums are the convolution's times a known
factor. Nothing is rounded, and sums are right modulo 2^32: an odd factor goes by its inverse there, a power of two by a
shift, which loses no bit of sums that are small enough (``QuantiseEncoded.fits``).
"""

from __future__ import annotations

from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.emit.rounded_numbers import dequantised
from sartor.codegen.kernels.winograd.transforms import Decoder, Encoder, Grid
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_SHORT, _WORD = 16, 32


class ExactEncoder(Encoder):
    """B^T d B of a tile of integers."""

    @property
    def _lanes(self) -> int:
        return 2 * self._of.lanes

    @property
    def _step(self) -> int:
        return self._lanes

    def _pixel(self, offset: Index, count: int, present: Condition) -> ir.Value:
        """A pixel minus the zero point, so that padding is zero."""
        asm = self._asm
        if isinstance(present, bool) or count < self._lanes:
            return self._centred(asm.load_as_stored(self._image, offset, count, present, self._lanes))
        # Masked loads of bytes are slow without AVX-512, so the first pixel is loaded in place of one outside.
        inside = arith.select(present, asm.value(offset), asm.value(0))
        numbers = self._centred(asm.load_as_stored(self._image, inside, count, size=self._lanes))
        mask = vector.broadcast(ir.VectorType.get([self._lanes], ir.IntegerType.get_signless(1)), present)
        return arith.select(mask, numbers, _zeros(numbers.type))

    def _centred(self, stored: ir.Value) -> ir.Value:
        kind = ir.VectorType.get([self._lanes], ir.IntegerType.get_signless(_SHORT))
        zero = vector.broadcast(stored.type, self._asm.scale_of(self._image).number)
        return arith.subi(*(arith.extsi(kind, operand) for operand in (stored, zero)))

    def _store(self, value: ir.Value, offset: Index, point: int) -> None:
        self._asm.store_words(value, self._space, offset)


class ExactDecoder(Decoder):
    """A^T M A of a tile of sums, which the scales of filters and image convert to real numbers."""

    _factor: ir.Value

    def _decoded(self, panel: Index, vector: int, number: Index) -> Grid:
        of, asm = self._of, self._asm
        scales = asm.add(of.points * of.filters, vector * of.lanes * of.float_size)
        offset = asm.add(asm.mul(panel, of.panel_elements), scales)
        image, filters = (self._memories[memory] for memory in of.memories)
        self._factor = arith.mulf(asm.load_floats(filters, offset), asm.scale_of(image).step)
        return super()._decoded(panel, vector, number)

    def _product(self, filters: tuple[Index, int], number: Index, point: int) -> ir.Value:
        words = self._asm.vector_type(ir.IntegerType.get_signless(_WORD))
        return arith.bitcast(words, super()._product(filters, number, point))

    def _total(self, start: ir.Value, value: ir.Value) -> ir.Value:
        factor = self._of.factor
        bits = (factor & -factor).bit_length() - 1
        whole = value
        if (odd := factor >> bits) != 1:
            whole = arith.muli(value, self._splat(pow(odd, -1, 1 << _WORD)))
        return dequantised(self._asm, arith.shrsi(whole, self._splat(bits)), start, self._factor)

    def _splat(self, number: int) -> ir.Value:
        return self._asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(_WORD), number))


def _zeros(kind: ir.VectorType) -> ir.Value:
    return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, 0)))
