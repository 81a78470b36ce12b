"""Panels of keys for kernels on a CPU: some keys of a head, by elements, each with the keys adjacent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.mlir.iree_compiler import ir, vector


@dataclass(frozen=True)
class KeyPanel:
    """A copy of up to ``length`` keys of a head, by loops over elements and keys.

    Attributes:
        head: emits.
        memory: of the panel.
        length: its keys, a multiple of the lanes of a vector.
    """

    head: HeadCode
    memory: ir.Value
    length: int

    def fill(self, first: Index, count: Index) -> None:
        """Copy ``count`` keys from ``first`` on, and something else to the rest of their last vector."""
        fill = self._transpose if self.head.form.has_key_rows else self._copy
        self.head.asm.repeat(0, count, self.head.asm.lanes, lambda key: fill(first, key, count))

    def _copy(self, first: Index, key: Index, count: Index) -> None:
        """Copy a vector of keys that are adjacent."""
        asm, head, keys = self.head.asm, self.head, self.head.form.keys
        start = asm.add(head.offset(keys, 0), first, key)
        mask = None if _is_whole(asm, count) else head.mask(asm.sub(count, key))

        def element(index: Index) -> None:
            offset = asm.add(start, asm.times(index, asm.size(keys.steps[-2])))
            loaded = head.load(head.memories[keys.memory], offset, mask)
            asm.store(loaded, self.memory, asm.add(asm.mul(index, self.length), key), asm.lanes)

        asm.repeat(0, head.form.depth, 1, element)

    def _transpose(self, first: Index, key: Index, count: Index) -> None:
        """Transpose a vector of keys whose elements are adjacent; the last key is read in place of those beyond it."""
        asm, head, keys = self.head.asm, self.head, self.head.form.keys
        memory, last = head.memories[keys.memory], asm.sub(count, 1)
        rows = [asm.add(key, lane) for lane in range(asm.lanes)]
        if not _is_whole(asm, count):
            rows = [asm.minimum(row, last) for row in rows]
        step, begin = asm.size(keys.steps[-1]), head.offset(keys, 0)
        starts = [asm.add(begin, asm.times(asm.add(first, row), step)) for row in rows]
        for element, size in head.parts(head.form.depth):
            loaded = [asm.load(memory, asm.add(start, element), size) for start in starts]
            for index, column in enumerate(transposed(asm, loaded)[:size]):
                asm.store(column, self.memory, asm.add((element + index) * self.length, key), asm.lanes)


def _is_whole(asm: Assembler, count: Index) -> bool:
    """Whether a number of keys is known to be whole vectors."""
    return isinstance(count, int) and count % asm.lanes == 0


def transposed(asm: Assembler, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The columns of a square of as many vectors as these have lanes, by halves of it, quarters, and so on."""
    columns, distance = list(rows), 1
    lanes = range(asm.lanes)
    while distance < asm.lanes:
        kept = [lane if not lane & distance else lane - distance + asm.lanes for lane in lanes]
        taken = [lane + distance if not lane & distance else lane + asm.lanes for lane in lanes]
        for one in (lane for lane in lanes if not lane & distance):
            pair = columns[one], columns[one + distance]
            columns[one], columns[one + distance] = vector.shuffle(*pair, kept), vector.shuffle(*pair, taken)
        distance *= 2
    return columns
