"""Winograd's method in integers: tiles of 8 bits are encoded to 16 bits, scaled to 8 bits again, and multiplied.

With the points 0, 1 and -1 tiles are encoded exactly, by sums and differences alone. Each point of a tile then gets its
own scale, from the largest of its numbers over all channels, so no range has to be known beforehand (LANCE has one
scale for all tiles: Li et al., Efficient Low-Precision Quantized Winograd Convolution, 2020). Filters have a scale for
each point and channel. The instruction takes the tile's numbers without a sign, so 128 is added to them, and sums start
from -128 times the sum of the filters.
"""

from __future__ import annotations

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.winograd.geometry import SHORT_BYTES, WinogradConvolution
from sartor.codegen.kernels.winograd.transforms import Decoder, Encoder
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector

_BYTE, _SHORT, _WORD = 8, 16, 32
_SIGN = 1 << (_BYTE - 1)
_SCALES, _SUMS = range(2)
# The instruction multiplies numbers of 16 bits, divides by this, and rounds: factors are fractions of it.
_DIVISOR = 1 << (_SHORT - 1)
_PRODUCT = "llvm.x86.avx512.pmul.hr.sw.512"
_MOST = _SIGN - 1
_REAL = ir.F32Type.get


class IntegerEncoder(Encoder):
    """B^T d B of a tile of integers, scaled to 8 bits without a sign."""

    def write(self, batch: Index, tile: Index, number: Index) -> None:
        of, asm = self._of, self._asm
        self._encode(batch, tile, asm.add(self._start, of.shorts))
        self._choose(asm.add(self._start, of.scales, asm.mul(number, of.scale_row)))
        target = asm.add(self._start, asm.mul(number, of.row))
        asm.repeat(0, of.points, 1, lambda point: self._scaled(point, asm.add(target, asm.mul(point, self._run))))

    @property
    def _lanes(self) -> int:
        return 2 * self._of.lanes

    @property
    def _step(self) -> int:
        return SHORT_BYTES * self._lanes

    @property
    def _point(self) -> int:
        return self._of.short_row

    @property
    def _run(self) -> int:
        """Elements of the workspace for one point of all encoded tiles."""
        return self._of.tiling.block * self._of.row

    def _pixel(self, offset: Index, count: int, present: Condition) -> ir.Value:
        """A pixel minus the zero point, so that padding is zero."""
        asm = self._asm
        stored = asm.load_as_stored(self._image, offset, count, present, self._lanes)
        zero = vector.broadcast(stored.type, asm.scale_of(self._image).number)
        return arith.subi(*(arith.extsi(self._vectors_of(_SHORT), operand) for operand in (stored, zero)))

    def _store(self, value: ir.Value, offset: Index, point: int) -> None:
        self._asm.store_words(value, self._space, offset)

    def _choose(self, scales: Index) -> None:
        """Store, for each point, the factor that scales its numbers, as a fraction of 16 bits, and the scale of the
        results."""
        of, asm = self._of, self._asm
        real, size = asm.vector_type(_REAL()), of.lanes * of.float_size
        most, unit = (
            asm.splat(ir.FloatAttr.get(_REAL(), float(number))) for number in (_MOST * _DIVISOR, _DIVISOR - 1)
        )
        for index in range(-(-of.points // of.lanes)):
            points = range(index * of.lanes, min((index + 1) * of.lanes, of.points))
            largest = arith.sitofp(real, self._largest(points))
            chosen = arith.minimumf(arith.divf(most, largest), unit)
            factors = arith.fptosi(ir.VectorType.get([of.lanes], ir.IntegerType.get_signless(_SHORT)), chosen)
            asm.store_words(factors, self._space, asm.add(self._start, of.multipliers + index * size // 2))
            # Computed from the rounded factor; numbers that fit into 8 bits already have a scale of one.
            scale = arith.divf(unit, arith.sitofp(real, factors))
            asm.store_floats(scale, self._space, asm.add(scales, index * size))

    def _largest(self, points: range) -> ir.Value:
        """The largest magnitude of the tile's numbers at each point, in words of 32 bits."""
        of, asm, none = self._of, self._asm, self._splat(0)

        def every(index: Index, largest: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(self._start, of.shorts, asm.mul(index, self._step))
            numbers = [self._kept(asm.add(start, point * of.short_row)) for point in points]
            sizes = [arith.maxsi(number, arith.subi(none, number)) for number in numbers]
            return [arith.maxsi(*pair) for pair in zip(largest, sizes, strict=True)]

        largest = asm.loop(0, -(-of.depth // self._lanes), 1, [none] * len(points), every)
        return _largest_of_each(asm, [*largest, *[none] * (of.lanes - len(points))])

    def _scaled(self, point: Index, target: Index) -> None:
        of, asm = self._of, self._asm
        source = asm.add(self._start, of.shorts, asm.mul(point, of.short_row))
        offset = asm.add(self._start, of.multipliers, asm.mul(point, SHORT_BYTES))
        one = asm.load_words(self._space, offset, ir.VectorType.get([1], ir.IntegerType.get_signless(_SHORT)))
        factor = vector.broadcast(self._vectors_of(_SHORT), one)

        def every(index: Index) -> None:
            value = self._kept(asm.add(source, asm.mul(index, self._step)))
            value = llvm.call_intrinsic(factor.type, _PRODUCT, [value, factor], [], [])
            value = arith.trunci(self._vectors_of(_BYTE), arith.xori(value, self._splat(_SIGN)))
            asm.store_all(value, self._space, asm.add(target, asm.mul(index, self._lanes)), self._lanes)

        asm.repeat(0, -(-of.depth // self._lanes), 1, every)

    def _kept(self, offset: Index) -> ir.Value:
        return self._asm.load_words(self._space, offset, self._vectors_of(_SHORT))

    def _vectors_of(self, bits: int) -> ir.VectorType:
        return ir.VectorType.get([self._lanes], ir.IntegerType.get_signless(bits))

    def _splat(self, number: int) -> ir.Value:
        kind = self._vectors_of(_SHORT)
        return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, number)))


class IntegerDecoder(Decoder):
    """A^T M A of a tile of integer sums, which are converted to real numbers by the scales of tile, filters and
    image."""

    def _product(self, filters: tuple[Index, int], number: Index, point: int) -> ir.Value:
        of, asm = self._of, self._asm
        loaded = super()._product(filters, number, point)
        words = arith.bitcast(asm.vector_type(ir.IntegerType.get_signless(_WORD)), loaded)
        offset = asm.add(self._start, asm.mul(number, of.scale_row), of.scales + point * of.float_size)
        of_tile = asm.load_words(self._memories[-1], offset, ir.VectorType.get([1], _REAL()))
        of_filters = asm.load_floats(self._memories[of.memories[1]], _table(of, asm, _SCALES, filters, point))
        scales = arith.mulf(of_filters, vector.broadcast(loaded.type, of_tile))
        return arith.mulf(arith.sitofp(loaded.type, words), scales)

    def _total(self, start: ir.Value, value: ir.Value) -> ir.Value:
        return vector.fma(value, self._asm.scale_of(self._memories[self._of.memories[0]]).step, start)


def _largest_of_each(asm: Assembler, vectors: list[ir.Value]) -> ir.Value:
    """The largest element of each vector of 16 bits, as a vector with a word for each; no element is negative.

    Pairs of vectors are merged to one, half of whose elements come from each, until one is left. That takes a third of
    the instructions of separate reductions.
    """
    lanes = share = 2 * len(vectors)
    while len(vectors) > 1:
        share //= 2
        firsts = [lane for lane in range(2 * lanes) if lane // share % 2 == 0]
        seconds = [lane + share for lane in firsts]
        vectors = [
            arith.maxsi(*(vector.shuffle(one, other, mask) for mask in (firsts, seconds)))
            for one, other in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    words = vector.bitcast(asm.vector_type(ir.IntegerType.get_signless(_WORD)), vectors[0])
    shift, below = (asm.splat(_word(number)) for number in (_SHORT, (1 << _SHORT) - 1))
    return arith.maxsi(arith.shrui(words, shift), arith.andi(words, below))


def integer_starts(
    of: WinogradConvolution, asm: Assembler, filters: ir.Value, panel: Index, point: Index
) -> list[ir.Value]:
    """The initial sums of each vector of a panel, in 32-bit integers."""
    less = asm.splat(_word(-_SIGN))
    offsets = [_table(of, asm, _SUMS, (panel, index), point) for index in range(of.tiling.vectors)]
    sums = [arith.fptosi(less.type, asm.load_floats(filters, offset)) for offset in offsets]
    return [arith.muli(sum_of_vector, less) for sum_of_vector in sums]


def _table(of: WinogradConvolution, asm: Assembler, table: int, filters: tuple[Index, int], point: Index) -> Index:
    """Offset of the scales or the sums of a vector of a panel."""
    panel, number = filters
    row = of.panel * of.float_size
    begin = of.points * (of.filters + table * row) + number * of.lanes * of.float_size
    return asm.add(asm.mul(panel, of.panel_elements), asm.mul(point, row), begin)


def _word(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(_WORD), number)
