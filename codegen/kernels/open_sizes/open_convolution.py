"""A convolution over images of any size: a product of rows that are made for a few register tiles at a time.

The rows of a block of tiles stay in the first- or second-level cache, where each panel of filters reads them. They are
the patches of an image (as in cuDNN's implicit product: Chetlur et al., 2014, section 3), or what a depthwise
convolution or a pooling computes. Borders, strides and dilations concern these alone, so that the products are those of
a matrix of any number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.open_sizes.open_rows import OpenRows
from sartor.codegen.kernels.open_sizes.patches import Patches
from sartor.codegen.kernels.windows.row_strips import Wiring
from sartor.codegen.mlir.iree_compiler import ir

# Worker threads have stacks of 128 KiB, and the compiler allows half of it.
_MOST_SCRATCH = (48 << 10) // 4


class MadeRows(Protocol):
    """Rows of a matrix, one for each place of a result, which are made where they are multiplied."""

    @property
    def depth(self) -> int:
        """Elements of a row."""

    def fill(self, asm: Assembler, memories: Sequence[ir.Value], places: tuple[Index, Index]) -> None:
        """Emit code that makes some rows.

        Args:
            asm: emits the code.
            memories: buffers of the layer that makes them, whose result is the memory of these rows alone.
            places: number of the first place among those of all images, and how many there are.
        """


@dataclass(frozen=True)
class GatheredRows:
    """Rows that are patches of an image.

    Attributes:
        patches: what is gathered.
    """

    patches: Patches

    @property
    def depth(self) -> int:
        """Elements of a row."""
        return self.patches.depth

    def fill(self, asm: Assembler, memories: Sequence[ir.Value], places: tuple[Index, Index]) -> None:
        """Emit code that gathers some rows; see ``MadeRows``."""
        self.patches.gather(asm, memories[0], memories[-1], places)


@dataclass(frozen=True)
class OpenConvolution:
    """A product whose rows are made for it.

    Attributes:
        rows: makes them.
        product: multiplies them.
        wirings: the buffers of what makes them, then those of the product.
    """

    rows: MadeRows
    product: OpenRows
    wirings: tuple[Wiring, Wiring]

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some may have nothing to do."""
        return self.product.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.product.lanes

    @property
    def _columns(self) -> int:
        """Rows of a register tile."""
        return self.product.tiles.nest.tiling.columns

    @property
    def _block(self) -> int:
        """Register tiles whose rows are made before they are multiplied."""
        return most_rows(self.rows.depth) // self._columns

    def check(self) -> None:
        """Make sure that the rows of a register tile fit a workgroup's memory, and that the product alone reads them.

        Raises:
            RejectionError: if they do not, or ops after the product read them, too.
        """
        if not self._block:
            raise RejectionError(f"{self._columns} rows of {self.rows.depth} elements do not fit a workgroup")
        check_read_once(self.product)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        depth = self.rows.depth
        made = asm.scratch(self._block * self._columns * depth, ir.MemRefType(memories[0].type).element_type)
        buffers = [*memories, made]
        given, operands = ([buffers[index] for index in wiring] for wiring in self.wirings)
        cut = self.product.cut(asm)
        begin, end = workgroup_range(asm, cut.tiles, self.groups[0], group[0])

        def block(tile: Index) -> None:
            """Make the rows of some tiles, and multiply them by the workgroup's panels."""
            last = asm.minimum(asm.add(tile, self._block), end)
            first = cut.row(asm, tile)
            self.rows.fill(asm, given, (first, asm.sub(cut.row(asm, last), first)))
            shift, parts = asm.sub(0, asm.mul(first, depth)), cut.parts(asm, (tile, last))
            self.product.tiles.nest.write_panels(
                asm, group, lambda panel: self.product.write_parts(asm, operands, parts, panel, shift)
            )

        asm.repeat(begin, end, self._block, block)


def check_read_once(product: OpenRows) -> None:
    """Make sure that a product alone reads what it multiplies.

    Raises:
        RejectionError: if ops after it read it, too.
    """
    made, epilogue = product.memories[0], product.tiles.nest.epilogue
    if any(isinstance(read, Access) and read.memory == made for read in epilogue.reads):
        raise RejectionError("the ops after the product read what it multiplies")


def most_rows(depth: int) -> int:
    """How many rows of ``depth`` elements fit a workgroup's memory."""
    return _MOST_SCRATCH // depth
