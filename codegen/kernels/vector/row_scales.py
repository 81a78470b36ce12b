"""Quantises the rows that a workgroup multiplies to 8 bits, each by a range of its own, found when the kernel runs.

A row's numbers become ``q = round((x - low) / step)``, so that a product with filters ``scale * w`` is
``scale * (step * sum(q * w) + low * sum(w))`` (dynamic quantisation per token: Yao et al., ZeroQuant, 2022, section
4.1). The zero point need not be an integer, because the sums of filters are known at compile time.

In transformers a few channels are many times larger than the others, and a range that includes them would leave few
steps for the others. So the range ends at ``REACH`` times the mean size of the row's numbers, outliers left out, and
numbers beyond it have ``q`` below 0 or above 255. The low 8 bits of all numbers are multiplied as usual. The high 8
bits are zero but for outliers, which tend to be the same channels in all rows (Dettmers et al., LLM.int8(), 2022,
section 3.2): only the groups of channels in which some row of the workgroup has one are multiplied once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from sartor.codegen.ir.variants.rounding import LEAST_STEP, LEVELS, MOST_LEVELS, REACH
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.mlir.iree_compiler import arith, ir, vector
from sartor.codegen.mlir.iree_compiler import math as functions

WORD_BYTES = 4
_LINE = 64
_BYTE, _WORD = 8, 32
# Floats near this are integers, so that adding it rounds to nearest even; and its bits.
_LARGE, _LARGE_BITS = 1.5 * 2**23, 0x4B400000
_STEP, _LOW, _HIGH_SUM = range(3)
# Words that describe a row: its step, its low end and the sum of its high bits.
_RECORD = 4
# Vectors of a row that are reduced side by side, because each reduction has to wait for the one before.
_AT_ONCE = 4

Rows = tuple[Index, Index]
_Place = tuple[ir.Value, Index]
_Fold = Callable[[list[ir.Value], ir.Value], list[ir.Value]]


@dataclass(frozen=True)
class Range:
    """The range of a row, each a vector that repeats one number."""

    low: ir.Value
    step: ir.Value


@dataclass(frozen=True)
class RowScales:
    """How a workgroup's rows lie in its part of the workspace.

    Low bits of all rows are followed by their high bits, a record for each row, the union of all high bits, a list of
    the groups of channels where these are not zero, and its length.

    Attributes:
        image: strides of the LHS, whose numbers are f32.
        depth: numbers of a row.
        group: numbers that are multiplied at once.
        columns: rows of the LHS in a row of the nest.
        most: most rows of the LHS that a workgroup multiplies.
    """

    image: ImageStrides
    depth: int
    group: int
    columns: int
    most: int

    @property
    def pitch(self) -> int:
        """Bytes from row to row: an odd number of cache lines, because rows of a power of two share cache sets."""
        return (-(-self.depth // _LINE) | 1) * _LINE

    @property
    def groups(self) -> int:
        """Groups of channels of a row."""
        return -(-self.depth // self.group)

    @property
    def elements(self) -> int:
        """Bytes of a workgroup."""
        return self._length + _LINE

    @property
    def strides(self) -> ImageStrides:
        """Strides of the low bits; the batch is the number of the workgroup."""
        return ImageStrides(self.elements, self.columns * self.pitch, self.pitch, self.pitch, self.pitch)

    @property
    def _high(self) -> int:
        return self.most * self.pitch

    @property
    def _records(self) -> int:
        return 2 * self.most * self.pitch

    @property
    def _union(self) -> int:
        return self._records + -(-self.most * _RECORD * WORD_BYTES // _LINE) * _LINE

    @property
    def _list(self) -> int:
        return self._union + self.pitch

    @property
    def _length(self) -> int:
        return self._list + -(-self.groups * WORD_BYTES // _LINE) * _LINE

    def write(
        self, asm: Assembler, memories: tuple[ir.Value, ir.Value], workgroup: Index, batch: Index, rows: Rows
    ) -> None:
        """Emit the quantisation of a workgroup's rows.

        Args:
            asm: emits the code.
            memories: the LHS and the workspace.
            workgroup: number of the workgroup.
            batch: index of the product.
            rows: first row of the nest and its end.
        """
        lhs, space = memories
        first, begin = (
            asm.add(asm.mul(batch, self.image.batch), asm.mul(rows[0], self.image.row)),
            self._at(asm, workgroup),
        )
        asm.fill(asm.zero_of(space), space, asm.add(begin, self._union), self.pitch)

        def every(row: Index) -> None:
            source = asm.add(first, asm.mul(row, self.image.column))
            bounds = self._range(asm, lhs, source)
            high = self._quantise(asm, (lhs, source), (space, asm.add(begin, asm.mul(row, self.pitch))), begin, bounds)
            for number, value in ((_STEP, bounds.step), (_LOW, bounds.low), (_HIGH_SUM, high)):
                asm.store_words(_first(value), space, self._record(asm, workgroup, row, number))

        asm.repeat(0, asm.mul(asm.sub(rows[1], rows[0]), self.columns), 1, every)
        self._list_groups(asm, space, begin)

    def range_of(self, asm: Assembler, space: ir.Value, workgroup: Index, row: Index) -> Range:
        """The range of a workgroup's row."""
        real = asm.vector_type(ir.F32Type.get())
        low, step = (self._repeated(asm, space, workgroup, row, place, real) for place in (_LOW, _STEP))
        return Range(low, step)

    def high_sum(self, asm: Assembler, space: ir.Value, workgroup: Index, row: Index) -> ir.Value:
        """A vector that repeats the sum of the high bits of a row, in 32-bit integers."""
        return self._repeated(asm, space, workgroup, row, _HIGH_SUM, asm.vector_type(_integer(_WORD)))

    def high_bits(self, asm: Assembler, workgroup: Index, row: Index, group: Index) -> Index:
        """Offset of the high bits of a row's group of channels."""
        return asm.add(self._at(asm, workgroup), asm.mul(row, self.pitch), asm.mul(group, self.group), self._high)

    def outliers(self, asm: Assembler, space: ir.Value, workgroup: Index) -> Index:
        """How many groups of channels have outliers."""
        return _index(asm, space, asm.add(self._at(asm, workgroup), self._length))

    def outlier(self, asm: Assembler, space: ir.Value, workgroup: Index, number: Index) -> Index:
        """A group of channels with outliers, by its number in the list."""
        return _index(asm, space, asm.add(self._at(asm, workgroup), asm.mul(number, WORD_BYTES), self._list))

    def _at(self, asm: Assembler, workgroup: Index) -> Index:
        return asm.mul(workgroup, self.elements)

    def _record(self, asm: Assembler, workgroup: Index, row: Index, number: int) -> Index:
        inside = asm.add(asm.mul(row, _RECORD * WORD_BYTES), self._records + number * WORD_BYTES)
        return asm.add(self._at(asm, workgroup), inside)

    def _repeated(
        self, asm: Assembler, space: ir.Value, workgroup: Index, row: Index, number: int, kind: ir.VectorType
    ) -> ir.Value:
        offset = self._record(asm, workgroup, row, number)
        return vector.broadcast(kind, asm.load_words(space, offset, ir.VectorType.get([1], kind.element_type)))

    def _range(self, asm: Assembler, lhs: ir.Value, source: Index) -> Range:
        """The range of a row; NaN if one of its numbers is."""
        none, reach = _splat(asm, 0.0), _splat(asm, REACH / self.depth)

        def extremes(carried: list[ir.Value], numbers: ir.Value) -> list[ir.Value]:
            total = arith.addf(carried[2], functions.absf(numbers))
            return [arith.minimumf(carried[0], numbers), arith.maximumf(carried[1], numbers), total]

        combine = (arith.minimumf, arith.maximumf, arith.addf)
        least, most, total = self._folded(asm, (lhs, source), extremes, combine)
        first = arith.mulf(total, reach)

        def sizes(carried: list[ir.Value], numbers: ir.Value) -> list[ir.Value]:
            size = functions.absf(numbers)
            return [arith.addf(carried[0], arith.select(arith.cmpf(arith.CmpFPredicate.OLE, size, first), size, none))]

        (kept,) = self._folded(asm, (lhs, source), sizes, (arith.addf,))
        bound = arith.mulf(kept, reach)
        low = arith.maximumf(least, arith.negf(bound))
        fine = arith.mulf(arith.subf(arith.minimumf(most, bound), low), _splat(asm, 1 / LEVELS))
        coarse = arith.mulf(arith.subf(most, least), _splat(asm, 1 / MOST_LEVELS))
        return Range(low, arith.maximumf(arith.maximumf(fine, coarse), _splat(asm, LEAST_STEP)))

    def _folded(
        self, asm: Assembler, source: _Place, fold: _Fold, combine: tuple[Callable[..., ir.Value], ...]
    ) -> list[ir.Value]:
        """Reduce a row by several operations at once, starting from zeros; each result repeats one number."""
        count, size = len(combine), _AT_ONCE * asm.lanes

        def loaded(offset: Index, length: int) -> ir.Value:
            return asm.load(source[0], asm.add(source[1], offset), length)

        def several(offset: Index, carried: list[ir.Value]) -> list[ir.Value]:
            parts = [carried[index : index + count] for index in range(0, len(carried), count)]
            starts = [asm.add(offset, index * asm.lanes) for index in range(len(parts))]
            moved = [fold(part, loaded(start, asm.lanes)) for part, start in zip(parts, starts, strict=True)]
            return [value for part in moved for value in part]

        whole = self.depth - self.depth % size
        folded = asm.loop(0, whole, size, [_splat(asm, 0.0)] * count * _AT_ONCE, several)
        totals = [reduce(combining, folded[position::count]) for position, combining in enumerate(combine)]
        for offset in range(whole, self.depth, asm.lanes):
            totals = fold(totals, loaded(offset, min(asm.lanes, self.depth - offset)))
        return [_across(asm, value, combining) for value, combining in zip(totals, combine, strict=True)]

    def _quantise(self, asm: Assembler, source: _Place, target: _Place, begin: Index, of: Range) -> ir.Value:
        """Emit low and high bits of a row; returns the sum of the latter. Bits after a row are multiplied by zeros."""
        inverse = arith.divf(_splat(asm, 1.0), of.step)
        shift, large = arith.negf(arith.mulf(of.low, inverse)), _splat(asm, _LARGE)
        words, numbers = (asm.vector_type(_integer(bits)) for bits in (_WORD, _BYTE))
        base, byte = (asm.splat(ir.IntegerAttr.get(_integer(_WORD), bits)) for bits in (_LARGE_BITS, _BYTE))

        def every(offset: Index, total: ir.Value, count: int) -> ir.Value:
            real = asm.load(source[0], asm.add(source[1], offset), count)
            nearest = arith.addf(asm.multiply_add(real, inverse, shift), large)
            number = arith.subi(arith.bitcast(words, nearest), base)
            high = arith.shrsi(number, byte)
            into, joint = asm.add(target[1], offset), asm.add(begin, offset, self._union)
            top = arith.trunci(numbers, high)
            asm.store_all(arith.trunci(numbers, number), target[0], into, asm.lanes)
            asm.store_all(top, target[0], asm.add(into, self._high), asm.lanes)
            seen = asm.load_words(target[0], joint, numbers)
            asm.store_all(arith.ori(seen, top), target[0], joint, asm.lanes)
            return arith.addi(total, high)

        whole = self.depth - self.depth % asm.lanes
        zero = asm.splat(ir.IntegerAttr.get(_integer(_WORD), 0))
        (total,) = asm.loop(0, whole, asm.lanes, [zero], lambda offset, carried: [every(offset, carried[0], asm.lanes)])
        if whole < self.depth:
            total = every(whole, total, self.depth - whole)
        return _across(asm, total, arith.addi)

    def _list_groups(self, asm: Assembler, space: ir.Value, begin: Index) -> None:
        """Emit the list of groups of channels whose high bits are not all zero."""
        word = _integer(_WORD)
        zero, one = (arith.constant(ir.IndexType.get(), number) for number in (0, 1))

        def every(group: Index, carried: list[ir.Value]) -> list[ir.Value]:
            offset = asm.add(begin, asm.mul(group, self.group), self._union)
            kind = ir.VectorType.get([1], _integer(self.group * _BYTE))
            joint = vector.extract(asm.load_words(space, offset, kind), [], [0])
            into = asm.add(begin, asm.mul(carried[0], WORD_BYTES), self._list)
            asm.store_words(arith.index_cast(word, asm.value(group)), space, into)
            count = arith.cmpi(arith.CmpIPredicate.ne, joint, arith.constant(joint.type, 0))
            return [arith.addi(carried[0], arith.select(count, one, zero))]

        (count,) = asm.loop(0, self.groups, 1, [zero], every)
        asm.store_words(arith.index_cast(word, count), space, asm.add(begin, self._length))


def _integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def _splat(asm: Assembler, number: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), number))


def _across(asm: Assembler, value: ir.Value, combine: Callable[..., ir.Value]) -> ir.Value:
    """Combine all lanes of a vector; each lane has the result."""
    distance = asm.lanes // 2
    while distance:
        value, distance = combine(value, asm.rotated(value, distance)), distance // 2
    return value


def _first(numbers: ir.Value) -> ir.Value:
    """The first element of a vector, as a vector of one."""
    return vector.extract_strided_slice(ir.VectorType.get([1], numbers.type.element_type), numbers, [0], [1], [1])


def _index(asm: Assembler, space: ir.Value, offset: Index) -> Index:
    """The index that is stored as a word."""
    word = asm.load_words(space, offset, ir.VectorType.get([1], _integer(_WORD)))
    index: ir.Value = arith.index_cast(ir.IndexType.get(), vector.extract(word, [], [0]))
    return index
