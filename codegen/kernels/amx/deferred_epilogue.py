"""The epilogue of a block, deferred: it is computed in parts while the next block is multiplied.

AMX and the vector units work at the same time only if instructions for both are close together: a processor looks a few
hundred instructions ahead, and the epilogue of a block is longer. So a part of it follows each run of the next block.
"""

from __future__ import annotations

from sartor.codegen.kernels.amx.contraction import TileContraction
from sartor.codegen.kernels.amx.epilogue import Block, TileFinish
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.mlir.iree_compiler import ir

_PANEL, _ROW, _COLUMN, _FRESH, _PIXELS = range(5)


class DeferredEpilogue:
    """Emits the epilogues of blocks, each a block late.

    Args:
        of: the contraction.
        asm: emits the code.
        finish: emits the epilogue of some pixels.
    """

    def __init__(self, of: TileContraction, asm: Assembler, finish: TileFinish) -> None:
        self._of, self._asm, self._finish = of, asm, finish
        self._memory = asm.scratch(_PIXELS + 1, ir.IntegerType.get_signless(64))
        for slot in range(_PIXELS + 1):
            asm.keep(self._memory, slot, 0)

    def keep(self, block: Block) -> None:
        """Record the position of a block whose sums have been stored, in memory."""
        kept = {_PANEL: block.panel.index, _ROW: block.row, _COLUMN: block.column, _FRESH: block.fresh}
        for slot, index in kept.items():
            self._asm.keep(self._memory, slot, index)
        self._asm.keep(self._memory, _PIXELS, self._of.tiling.pixels)

    def part(self, block: Block, number: Index) -> None:
        """Emit part ``number`` of the previous block's epilogue, and prefetch what this block's epilogue will touch.

        The previous block must be in a panel of the same size.
        """
        asm, pixels = self._asm, self._of.tiling.pixels
        part = -(-pixels // self._of.parts)
        first = asm.mul(number, part)
        before, there = self._before(block.panel)
        if part == 1:
            asm.when(asm.less(first, there), lambda: self._finish.write(before, first, None))
            asm.when(asm.less(first, pixels), lambda: self._finish.fetch(block, first))
            return
        end = asm.add(first, part)
        asm.when(asm.less(first, there), lambda: self._finish.write(before, first, asm.minimum(end, there)))
        asm.repeat(first, asm.minimum(end, pixels), 1, lambda pixel: self._finish.fetch(block, pixel))

    def drain(self, panel: Panel) -> None:
        """Emit the rest of the previous block's epilogue, if there is one, in a panel of the same size."""
        before, there = self._before(panel)
        self._asm.when(self._asm.less(0, there), lambda: self._finish.write(before, 0, there))
        self._asm.keep(self._memory, _PIXELS, 0)

    def _before(self, panel: Panel) -> tuple[Block, Index]:
        """The previous block, and how many pixels of each of its tiles are to be finished."""
        index, row, column, fresh, pixels = (self._asm.kept(self._memory, number) for number in range(_PIXELS + 1))
        return Block(Panel(index, panel.vectors, panel.last), row, column, 0, fresh), pixels
