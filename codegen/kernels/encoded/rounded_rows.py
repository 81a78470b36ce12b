"""Rounds the rows that a workgroup multiplies to 8 or 16 bits, block by block, each by its largest number.

A block's numbers become ``q = round(x / scale)``, from -127 to 127, or from -32,767 to 32,767. They are stored in the
order in which codes come out of words: the first codes of each byte or half of a word, then the second ones, and so on.
No integers stand for the numbers of a block one of which is infinite: its scale is NaN, and so are the row's results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.packed_blocks import BYTE_BITS, WORD_BYTES, PackedBlocks
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.mlir.iree_compiler import arith, ir, vector
from sartor.codegen.mlir.iree_compiler import math as functions

# The reciprocal of smaller scales is infinite in f32.
_LEAST_SCALE = 1.2e-38
# Floats near this are integers, so that adding it rounds to nearest even; and its bits.
_LARGE, _LARGE_BITS = 1.5 * 2**23, 0x4B400000
# Words for each block of a row: the scale, and the sum of its integers.
_SCALE, _SUM, _RECORD = 0, 1, 2
_LINE = 64
# Numbers of a block that are held, in registers and on the stack, until its scale is known.
_MOST_HELD = 512


@dataclass(frozen=True)
class RoundedRows:
    """How a workgroup's rows lie in its part of the workspace: all integers of a row, then a record for each block.

    Attributes:
        blocks: the weight that rows are multiplied by.
        image: strides of the LHS, whose numbers are f32.
        columns: rows of the LHS in a row of the nest.
        most: most rows of the LHS that a workgroup multiplies.
        bytes: of an integer, 1 or 2.
    """

    blocks: PackedBlocks
    image: ImageStrides
    columns: int
    most: int
    bytes: int = 1

    @property
    def codes_of_field(self) -> int:
        """Codes, or lower bits of them, in a part of a word that is as long as an integer."""
        return self.bytes * BYTE_BITS // self.blocks.low_bits

    @property
    def _integers(self) -> int:
        """Bytes of a row's integers."""
        return self.blocks.encoding.blocks * self.blocks.encoding.block * self.bytes

    @property
    def pitch(self) -> int:
        """Bytes from row to row, an odd number of cache lines."""
        size = self._integers + self.blocks.encoding.blocks * _RECORD * WORD_BYTES
        return (-(-size // _LINE) | 1) * _LINE

    @property
    def elements(self) -> int:
        """Bytes of a workgroup."""
        return self.most * self.pitch

    def write(
        self, asm: Assembler, memories: tuple[ir.Value, ir.Value], begin: Index, rows: tuple[Index, Index]
    ) -> None:
        """Emit the rounding of a workgroup's rows.

        Args:
            asm: emits the code.
            memories: the LHS and the workspace.
            begin: offset of the workgroup's part.
            rows: first row of the nest and its end.
        """
        lhs, space = memories
        first, of = asm.mul(rows[0], self.image.row), self.blocks.encoding

        def every(row: Index) -> None:
            source, target = asm.add(first, asm.mul(row, self.image.column)), asm.add(begin, asm.mul(row, self.pitch))

            def block(number: Index, size: int) -> None:
                start = asm.mul(number, of.block)
                into = space, asm.add(target, asm.mul(start, self.bytes))
                values = self._block(asm, (lhs, asm.add(source, start)), into, size)
                for place, value in enumerate(values):
                    asm.store_words(_first(value), space, self._record(asm, target, number, place))

            whole = of.depth // of.block
            asm.repeat(0, whole, 1, lambda number: block(number, of.block))
            if whole < of.blocks:
                block(whole, of.depth - whole * of.block)

        asm.repeat(0, asm.mul(asm.sub(rows[1], rows[0]), self.columns), 1, every)

    def group(self, asm: Assembler, row: Index, block: Index, word: Index, part: int) -> Index:
        """Offset of the integers that a word's codes at one place of each byte, or half, are multiplied by; ``row`` is
        the offset of the row."""
        codes = asm.mul(word, self.blocks.codes_of_word * self.bytes)
        return asm.add(row, asm.mul(block, self.blocks.encoding.block * self.bytes), codes, part * WORD_BYTES)

    def scale(self, asm: Assembler, space: ir.Value, row: Index, block: Index) -> ir.Value:
        """A vector that repeats the scale of a block of a row."""
        return self._repeated(asm, space, self._record(asm, row, block, _SCALE), ir.F32Type.get())

    def sum(self, asm: Assembler, space: ir.Value, row: Index, block: Index) -> ir.Value:
        """A vector that repeats the sum of the integers of a block of a row."""
        return self._repeated(asm, space, self._record(asm, row, block, _SUM), _integer(32))

    def _repeated(self, asm: Assembler, space: ir.Value, offset: Index, kind: ir.Type) -> ir.Value:
        return vector.broadcast(asm.vector_type(kind), asm.load_words(space, offset, ir.VectorType.get([1], kind)))

    def _record(self, asm: Assembler, row: Index, block: Index, place: int) -> Index:
        return asm.add(row, self._integers + place * WORD_BYTES, asm.mul(block, _RECORD * WORD_BYTES))

    def _block(
        self, asm: Assembler, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], size: int
    ) -> tuple[ir.Value, ir.Value]:
        """Emit the integers of a block, of which ``size`` exist; returns its scale and the sum of its integers."""
        block, lanes = self.blocks.encoding.block, asm.lanes
        if block > _MOST_HELD:
            return self._long_block(asm, source, target, size)
        counts = [max(0, min(lanes, size - start)) for start in range(0, block, lanes)]
        zero = _splat(asm, 0.0)
        numbers = [
            asm.load(source[0], asm.add(source[1], index * lanes), count) if count else zero
            for index, count in enumerate(counts)
        ]
        most = asm.splat(ir.IntegerAttr.get(_integer(32), 0))
        for vector_of in numbers:
            most = _larger(asm, most, vector_of)
        scale, inverse = self._scale_of(asm, most)
        total, together = asm.splat(ir.IntegerAttr.get(_integer(32), 0)), self._together(asm)
        for index in range(0, len(numbers), together):
            place = target[0], asm.add(target[1], index * lanes * self.bytes)
            total = self._stored(asm, numbers[index : index + together], inverse, place, total)
        return scale, _across(asm, total, arith.addi)

    def _together(self, asm: Assembler) -> int:
        """Vectors whose integers are stored together, as they go with the codes of one word."""
        return -(-self.blocks.codes_of_word // asm.lanes)

    def _long_block(
        self, asm: Assembler, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], size: int
    ) -> tuple[ir.Value, ir.Value]:
        """As ``_block``, by loops that read all numbers twice: so many would fill a worker thread's stack."""
        lanes, zero, together = asm.lanes, _splat(asm, 0.0), self._together(asm)
        step = lanes * together
        whole = size - size % step

        def read(start: Index, count: int) -> list[ir.Value]:
            counts = [max(0, min(lanes, count - before)) for before in range(0, step, lanes)]
            places = [asm.add(source[1], start, index * lanes) for index in range(together)]
            return [asm.load(source[0], *place) if place[1] else zero for place in zip(places, counts, strict=True)]

        def larger(start: Index, carried: list[ir.Value], count: int = step) -> list[ir.Value]:
            most = carried[0]
            for numbers in read(start, count):
                most = _larger(asm, most, numbers)
            return [most]

        most = asm.loop(0, whole, step, [asm.splat(ir.IntegerAttr.get(_integer(32), 0))], larger)
        most = larger(whole, most, size - whole) if whole < size else most
        scale, inverse = self._scale_of(asm, most[0])

        def rounded(start: Index, carried: list[ir.Value], count: int = step) -> list[ir.Value]:
            place = target[0], asm.add(target[1], asm.mul(start, self.bytes))
            return [self._stored(asm, read(start, count), inverse, place, carried[0])]

        total = asm.loop(0, whole, step, [asm.splat(ir.IntegerAttr.get(_integer(32), 0))], rounded)
        filled = whole
        if whole < size:
            total, filled = rounded(whole, total, size - whole), whole + step

        def fill(start: Index) -> None:
            place = target[0], asm.add(target[1], asm.mul(start, self.bytes))
            self._stored(asm, [zero] * together, inverse, place, total[0])

        asm.repeat(filled, self.blocks.encoding.block, step, fill)
        return scale, _across(asm, total[0], arith.addi)

    def _stored(
        self,
        asm: Assembler,
        numbers: Sequence[ir.Value],
        inverse: ir.Value,
        place: tuple[ir.Value, Index],
        total: ir.Value,
    ) -> ir.Value:
        """Store the integers of some vectors of numbers; returns ``total`` with them added."""
        origin = asm.splat(ir.IntegerAttr.get(_integer(32), _LARGE_BITS))
        joined: list[ir.Value] = []
        for number in numbers:
            nearest = arith.addf(arith.mulf(number, inverse), _splat(asm, _LARGE))
            joined.append(arith.subi(arith.bitcast(asm.vector_type(_integer(32)), nearest), origin))
            total = arith.addi(total, joined[-1])
        while len(joined) > 1:
            count = ir.VectorType(joined[0].type).shape[0]
            pairs = zip(joined[::2], joined[1::2], strict=True)
            joined = [vector.shuffle(*pair, range(2 * count)) for pair in pairs]
        count = ir.VectorType(joined[0].type).shape[0]
        integers = arith.trunci(ir.VectorType.get([count], _integer(self.bytes * BYTE_BITS)), joined[0])
        asm.store_words(self._ordered(integers), *place)
        return total

    def _scale_of(self, asm: Assembler, most: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The scale of a block and its reciprocal, in all lanes, by the bits of the largest numbers of each lane."""
        largest = arith.bitcast(asm.vector_type(ir.F32Type.get()), _across(asm, most, arith.maxsi))
        step = arith.mulf(largest, _splat(asm, 1 / most_integer(self.bytes)))
        # An infinity minus itself is NaN.
        scale = arith.addf(arith.maximumf(step, _splat(asm, _LEAST_SCALE)), arith.subf(largest, largest))
        return scale, arith.divf(_splat(asm, 1.0), scale)

    def _ordered(self, integers: ir.Value) -> ir.Value:
        """Integers in the order in which codes come out of words."""
        size, parts = self.blocks.codes_of_word, self.codes_of_field
        if parts == 1:
            return integers
        order = [
            start + field * parts + part
            for start in range(0, ir.VectorType(integers.type).shape[0], size)
            for part in range(parts)
            for field in range(WORD_BYTES // self.bytes)
        ]
        return vector.shuffle(integers, integers, order)


def most_integer(size: int) -> int:
    """The largest number that rows are rounded to in integers of so many bytes."""
    return (1 << (size * BYTE_BITS - 1)) - 1


def _integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def _splat(asm: Assembler, number: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), number))


def _larger(asm: Assembler, most: ir.Value, numbers: ir.Value) -> ir.Value:
    """The larger bits, in each lane, of some or of the absolute value of a float: these are ordered as the floats are,
    and NaN is the largest. A maximum of floats that keeps NaN takes four instructions."""
    return arith.maxsi(most, arith.bitcast(asm.vector_type(_integer(32)), functions.absf(numbers)))


def _across(asm: Assembler, value: ir.Value, combine: Callable[..., ir.Value]) -> ir.Value:
    """Combine all lanes of a vector; each lane has the result."""
    distance = asm.lanes // 2
    while distance:
        value, distance = combine(value, asm.rotated(value, distance)), distance // 2
    return value


def _first(numbers: ir.Value) -> ir.Value:
    """The first element of a vector, as a vector of one."""
    return vector.extract_strided_slice(ir.VectorType.get([1], numbers.type.element_type), numbers, [0], [1], [1])
