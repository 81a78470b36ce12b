"""Prefetch filters into the second-level cache before blocks of tiles read them.

Each block of a panel fetches a part of the next panel's filters, line by line and as evenly as possible, because lines
that arrive from memory compete with those that move from the second-level cache to the first. Filters of a panel that
is too large to stay there are fetched shortly before they are read.
"""

from __future__ import annotations

from sartor.codegen.kernels.amx.contraction import TileContraction
from sartor.codegen.kernels.amx.epilogue import Block
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.mlir.iree_compiler import ir

# How far before their use filters are prefetched, in bytes, if not a panel ahead.
_PREFETCH_DISTANCE = 1 << 14
_LINE_BYTES = 64


class FilterFetch:
    """Emits the prefetches of one workgroup.

    Args:
        of: the contraction.
        asm: emits the code.
        filters: packed.
        first: ordinal of the first block of each panel.
        panels: the workgroup's first panel, and the end.
    """

    def __init__(
        self, of: TileContraction, asm: Assembler, filters: ir.Value, first: Index, panels: tuple[Index, Index]
    ) -> None:
        self._of, self._asm, self._filters = of, asm, filters
        self._first, self._panels = first, panels
        self._line = _LINE_BYTES // of.element.bytes
        self._block_lines = -(-of.panel // (self._line * of.fewest_blocks))
        # The remaining lines of a block, too few for every step, are distributed over its runs.
        self._step_lines = self._block_lines // of.steps
        left = self._block_lines - self._step_lines * of.steps
        self._run_lines = -(-left // of.row_runs)

    def step(self, block: Block, filters: Index, step: Index) -> None:
        """Prefetch after a step that read ``filters``; ``step`` counts within the block."""
        of, asm = self._of, self._asm
        if not of.streams:
            return
        later = asm.add(filters, _PREFETCH_DISTANCE // of.element.bytes)
        lines = of.tiling.vectors * of.tile // self._line
        if not of.fetches_panels:
            self._fetch(later, lines)
            return
        self._fetch_next(block, asm.mul(step, self._step_lines), self._step_lines)
        # The first panel was not fetched before, so its first block fetches as it reads.
        is_first = asm.all_of(asm.equal(block.ordinal, self._first), self.is_first(block.panel))
        asm.when(is_first, lambda: self._fetch(later, lines))

    def run(self, block: Block, run: Index) -> None:
        """Prefetch after a run; ``run`` counts within the block."""
        of, asm = self._of, self._asm
        if of.streams and of.fetches_panels:
            begin = self._step_lines * of.steps
            self._fetch_next(block, asm.add(asm.mul(run, self._run_lines), begin), self._run_lines)

    def is_first(self, panel: Panel) -> Condition:
        """Whether a panel is the workgroup's first."""
        return self._asm.equal(panel.index, self._panels[0])

    def _fetch_next(self, block: Block, begin: Index, count: int) -> None:
        """Fetch ``count`` lines of the next panel from ``begin`` on, counted within the part of this block."""
        of, asm = self._of, self._asm
        if not count:
            return
        ordinal, following = asm.sub(block.ordinal, self._first), asm.add(block.panel.index, 1)
        lines = asm.add(asm.mul(ordinal, self._block_lines), begin)
        start = asm.add(asm.mul(following, of.panel), asm.mul(lines, self._line))
        is_wanted = asm.all_of(asm.within(ordinal, of.fewest_blocks), asm.less(following, self._panels[1]))
        asm.when(is_wanted, lambda: self._fetch(start, count))

    def _fetch(self, start: Index, lines: int) -> None:
        for number in range(lines):
            self._asm.prefetch(self._filters, self._asm.add(start, number * self._line))
