"""A matrix product by a weight in blocks of integers, of many rows: each panel is decoded once, then multiplied.

A workgroup decodes a panel into memory that stays in its cache, and computes all its rows in register tiles as if the
weight were of f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_parts import Turn, Unit
from sartor.codegen.kernels.encoded.block_reader import Block, BlockReader
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.epilogue import TileOrigin
from sartor.codegen.kernels.loops.nest import NestKernel, Starts, Tile
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.vector.contraction import Contraction, FilterStrides
from sartor.codegen.mlir.iree_compiler import ir

# The decoded panels of all workgroups follow all other buffers.
_LAST = -1


@dataclass(frozen=True)
class DecodedPanels(NestKernel):
    """The kernel.

    Attributes:
        blocks: the weight in memory.
        image: strides of the LHS, each row a pixel.
        memories: positions of the LHS, codes, scales and, if there are any, zero points among the buffers; the
            workspace is the last buffer.
    """

    blocks: PackedBlocks
    image: ImageStrides
    memories: tuple[int, ...]

    @property
    def _panel(self) -> int:
        """Elements of a decoded panel, ``[depth, width]``."""
        return self.blocks.encoding.depth * self.blocks.width

    @property
    def workspace(self) -> TensorType:
        """Type of the decoded panels of all workgroups."""
        first, second, third = self.groups
        return TensorType((first * second * third * self._panel,), F32)

    @property
    def _contraction(self) -> Contraction:
        """The product by a decoded panel; its batch is the number of the workgroup."""
        panels = FilterStrides(self._panel, 0, 0, 0, self.blocks.width, self.lanes, padded=True)
        image = replace(self.image, batch=0)
        return Contraction(self.nest, self.blocks.encoding.depth, image, panels, (self.memories[0], _LAST))

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        number = asm.add(group[0], asm.mul(group[1], self.groups[0]))
        rows = workgroup_range(asm, self.nest.rows.output, self.groups[0], group[0])
        multiply = self._contraction.accumulation(asm, memories)

        def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
            of = tile.origin
            return multiply(replace(tile, origin=TileOrigin(number, of.row, of.column, of.vector, of.inside)), starts)

        def panel(of: Panel) -> None:
            self._decode(asm, memories, asm.mul(number, self._panel), of)
            self.nest.write_panel(asm, memories, rows, of, accumulate)

        self.nest.write_panels(asm, group, panel)

    def _decode(self, asm: Assembler, memories: Sequence[ir.Value], begin: Index, panel: Panel) -> None:
        """Emit the elements of a panel, which are stored from ``begin`` on."""
        parts = [memories[part] for part in self.memories[1:]]
        reader = BlockReader(self.blocks, asm, parts, panel, Turn())

        def block(of: Block, _: list[ir.Value]) -> list[ir.Value]:
            shifts = reader.shifts(of)

            def step(units: list[Unit], depth: Index, index: int, _: list[ir.Value]) -> list[ir.Value]:
                into = asm.add(begin, asm.mul(depth, self.blocks.width))
                for vector, element in enumerate(reader.elements(of, shifts, units, index)):
                    asm.store(element, memories[_LAST], asm.add(into, vector * self.lanes), self.lanes)
                return []

            return reader.over_codes(of, [], step)

        reader.over_blocks([], block)
