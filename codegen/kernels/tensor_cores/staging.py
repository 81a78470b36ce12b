"""Copies of operands to shared memory: which thread copies what, and where it lies there.

A row of a stage has 4 or 8 units of 16 bytes. ``ldmatrix`` reads the same unit of eight rows at once, so these have to
lie in different banks: unit ``u`` of row ``r`` is stored at ``u ^ f(r)``, where ``f`` differs among the rows that would
share banks. Reads of eight rows and writes of whole rows then touch each bank once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.tensor_cores.tiling import UNIT
from sartor.codegen.mlir.iree_compiler import arith, ir

_BANK_UNITS = 8  # Units of 16 bytes in all 32 banks.


def swizzled(asm: ThreadAssembler, row: Index, unit: Index, units: int) -> Index:
    """Where a unit of a row lies, in units, among rows of ``units`` units."""
    rows_in_banks = _BANK_UNITS // units
    turned, _ = asm.divide(row, rows_in_banks)
    _, mask = asm.divide(turned, units)
    return asm.add(asm.mul(row, units), asm.xor(unit, mask))


def widest_copy(steps: Sequence[int], element_bytes: int, elements: str) -> int:
    """Elements that one copy moves: of 16, 8 or 4 bytes that are adjacent and aligned in all rows.

    Args:
        steps: elements of a row, and between what a copy may begin with.
        element_bytes: of an element.
        elements: what they are, for the message.

    Raises:
        RejectionError: if there is none.
    """
    for count in (UNIT // element_bytes, 8 // element_bytes, 4 // element_bytes):
        if count and all(step % count == 0 for step in steps):
            return count
    raise RejectionError(f"rows of {steps[0]} {elements} cannot be copied in words of four bytes")


@dataclass(frozen=True)
class PixelRows:
    """Rows of the LHS: for each pixel of the result the taps' pixels of the image, channels innermost in a row.

    In the image they are adjacent, or in planes, as a network's input of few channels has them.

    Attributes:
        axes: windows along H and W; a product has an image of one row, and one tap.
        image: strides of the image.
        channels: of the image.
        batches: images.
    """

    axes: tuple[Axis, Axis]
    image: ImageStrides
    channels: int
    batches: int

    @property
    def rows(self) -> int:
        """Rows, in one image."""
        return self.axes[0].output * self.axes[1].output

    @property
    def depth(self) -> int:
        """Elements of a row."""
        return self.axes[0].kernel * self.axes[1].kernel * self.channels

    def widest(self, element_bytes: int) -> int:
        """Elements that one copy moves; ``RejectionError`` as for ``widest_copy``."""
        steps = self.channels, self.image.batch, self.image.row, self.image.column
        return widest_copy((1,) if self.is_planar else steps, element_bytes, "channels")

    @property
    def is_planar(self) -> bool:
        """Whether neighbouring channels are in different planes."""
        return self.channels > 1 and self.image.block == 1 != self.image.blocks


class StagedRows(Protocol):
    """How the LHS's rows come to shared memory: the part of one thread."""

    def check(self) -> None:
        """Make sure that all threads have equally much to do; ``RejectionError`` if not."""

    def places(self, asm: ThreadAssembler, thread: Index, first: Index) -> Sequence[Place]:
        """Where the thread's rows lie, which the stages have in common; ``first`` is the tile's first row."""

    def start(
        self,
        asm: ThreadAssembler,
        memories: tuple[ir.Value, ir.Value],
        places: Sequence[Place],
        part: tuple[Index, Index, Index],
        target: Index,
    ) -> None:
        """Start what fills one stage, which is there after the copies of this stage and a barrier.

        Args:
            asm: emits.
            memories: image and shared memory.
            places: of the thread's rows.
            part: number of the image, the thread's number, and the stage's first element of the reduction.
            target: offset of the stage in shared memory.
        """


@dataclass(frozen=True)
class RowCopies:
    """The copies of the LHS's rows that one thread makes for each stage.

    Attributes:
        source: what is read.
        tile_rows: rows of the tile.
        units: units of 16 bytes in a row of a stage.
        threads: of the workgroup.
        element_bytes: of an element.
        overshoots: whether some stages begin beyond the end of the reduction, where a row's next element is not its.
    """

    source: PixelRows
    tile_rows: int
    units: int
    threads: int
    element_bytes: int
    overshoots: bool = False

    @property
    def count(self) -> int:
        """Elements of a copy."""
        return self.source.widest(self.element_bytes)

    @property
    def _per_row(self) -> int:
        return self.units * UNIT // (self.count * self.element_bytes)

    @property
    def _channel_step(self) -> int:
        """Elements between neighbouring channels of the image."""
        return self.source.image.blocks if self.source.is_planar else 1

    @property
    def passes(self) -> int:
        """Copies of a thread for a stage."""
        return self.tile_rows * self._per_row // self.threads

    def check(self) -> None:
        """Make sure that all threads have equally many copies.

        Raises:
            RejectionError: if not.
        """
        if self.threads % self._per_row or (self.tile_rows * self._per_row) % self.threads:
            raise RejectionError("the copies of a stage are not divided equally among threads")

    def places(self, asm: ThreadAssembler, thread: Index, first: Index) -> list[Place]:
        """Where the thread's rows lie, which the stages have in common; ``first`` is the tile's first row."""
        start, part = asm.divide(thread, self._per_row)
        step = self.threads // self._per_row
        return [
            self._place(asm, asm.add(start, index * step), part, asm.add(first, start, index * step))
            for index in range(self.passes)
        ]

    def _place(self, asm: ThreadAssembler, row: Index, part: Index, pixel: Index) -> Place:
        down, across = self.source.axes
        line, column = asm.divide(pixel, across.output) if down.output > 1 else (0, pixel)
        y = asm.add(asm.mul(line, down.stride), -down.padding)
        x = asm.add(asm.mul(column, across.stride), -across.padding)
        per_unit = UNIT // (self.count * self.element_bytes)
        unit, rest = asm.divide(part, per_unit)
        place = asm.mul(swizzled(asm, row, unit, self.units), per_unit)
        is_row = True if self.source.rows % self.tile_rows == 0 else asm.less(pixel, self.source.rows)
        return Place(asm.mul(asm.add(place, rest), self.count), y, x, is_row)

    def start(
        self,
        asm: ThreadAssembler,
        memories: tuple[ir.Value, ir.Value],
        places: Sequence[Place],
        part: tuple[Index, Index, Index],
        target: Index,
    ) -> None:
        """Start the thread's copies of one stage; arguments as for ``StagedRows``."""
        batch, thread, first = part
        base = asm.mul(batch, self.source.image.batch)
        _, column = asm.divide(thread, self._per_row)
        position = asm.add(first, asm.mul(column, self.count))
        exists, offsets, taps = self._tap(asm, position)
        for place in places:
            offset, inside = self._pixel(asm, place, taps)
            present = asm.all_of(exists, place.is_row, inside)
            source = asm.add(base, offset, offsets)
            amount = None if present is True else chosen(asm, present, self.count, 0)
            source = source if present is True else chosen(asm, present, source, 0)
            asm.copy_later((memories[0], source), (memories[1], asm.add(target, place.target)), self.count, amount)

    def _tap(self, asm: ThreadAssembler, position: Index) -> tuple[Condition, Index, tuple[Index, Index]]:
        """Whether an element of the reduction exists, the offset of its channel, and the distances of its tap along H
        and W."""
        down, across = self.source.axes
        step = self.units * UNIT // self.element_bytes
        is_whole = self.source.depth % step == 0 and not self.overshoots
        exists = True if is_whole else asm.less(position, self.source.depth)
        if down.kernel * across.kernel == 1:
            return exists, asm.mul(position, self._channel_step), (0, 0)
        tap, channel = asm.divide(position, self.source.channels)
        line, column = asm.divide(tap, across.kernel)
        channel = asm.mul(channel, self._channel_step)
        return exists, channel, (asm.mul(line, down.dilation), asm.mul(column, across.dilation))

    def _pixel(self, asm: ThreadAssembler, place: Place, taps: tuple[Index, Index]) -> tuple[Index, Condition]:
        """Offset of a tap's pixel in the image, and whether it is inside."""
        image = self.source.image
        offset, inside = [], []
        for start, tap, axis, step in zip(
            (place.y, place.x), taps, self.source.axes, (image.row, image.column), strict=True
        ):
            position = asm.add(start, tap)
            offset.append(asm.mul(position, step))
            inside.append(asm.within(position, axis.input) if axis.is_padded else True)
        return asm.add(*offset), asm.all_of(*inside)


@dataclass(frozen=True)
class Place:
    """A copy's part that stages have in common.

    Attributes:
        target: offset in the stage, in elements.
        y: the window's first row, which may be outside the image.
        x: its first column.
        is_row: whether there is such a row.
    """

    target: Index
    y: Index
    x: Index
    is_row: Condition


@dataclass(frozen=True)
class PackedCopies:
    """The copies of the RHS, packed ``[N / columns, K / depth, columns, depth]``, that one thread makes for a stage.

    Attributes:
        tile_columns: columns of a tile.
        units: units of 16 bytes in a row of a stage.
        threads: of the workgroup.
        element_bytes: of an element.
    """

    tile_columns: int
    units: int
    threads: int
    element_bytes: int

    def places(self, asm: ThreadAssembler, thread: Index) -> list[tuple[Index, Index]]:
        """Offsets, in elements, of the thread's copies in a packed tile and in a stage."""
        fragment_places = []
        per_unit = UNIT // self.element_bytes
        for index in range(self.tile_columns * self.units // self.threads):
            number = asm.add(thread, index * self.threads)
            column, unit = asm.divide(number, self.units)
            target = swizzled(asm, column, unit, self.units)
            fragment_places.append((asm.mul(number, per_unit), asm.mul(target, per_unit)))
        return fragment_places

    def start(
        self,
        asm: ThreadAssembler,
        memories: tuple[ir.Value, ir.Value],
        places: list[tuple[Index, Index]],
        tile: Index,
        target: Index,
    ) -> None:
        """Start the thread's copies of the packed tile at offset ``tile`` to the stage at offset ``target``."""
        for source, place in places:
            origin, shared = (memories[0], asm.add(tile, source)), (memories[1], asm.add(target, place))
            asm.copy_later(origin, shared, UNIT // self.element_bytes)


def chosen(asm: ThreadAssembler, condition: Condition, one: Index, other: Index) -> Index:
    """One of two indices."""
    if isinstance(condition, bool):
        return one if condition else other
    return arith.select(condition, asm.value(one), asm.value(other))
