"""The loops of convolutions of one or a few output channels: vectors of the result are neighbouring pixels of a row.

Kernels of more channels keep the result's channels in the lanes of a vector, of which a few channels would use a few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.loops.nest import Loops, Tile
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.loops.tiles import TileRun, tile_runs
from sartor.codegen.kernels.loops.tiling import Sizes
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class PlaneTiling(Sizes):
    """Sizes of tiles.

    Attributes:
        vectors: of a row of the result in a tile.
        row_groups: workgroups that partition the rows.
    """

    vectors: int
    row_groups: int


@dataclass(frozen=True)
class Plane(Loops):
    """One channel of results ``[N, OC, OH, OW]`` in tiles of some vectors of neighbouring pixels.

    Attributes:
        tiling: sizes of tiles.
    """

    tiling: PlaneTiling


@dataclass(frozen=True)
class PlaneCode(ABC):
    """Base of the kernels that compute the tiles of planes, those of all channels together.

    Attributes:
        planes: loops over tiles of each channel of the result, which differ in what they read and store alone.
        depth: input channels.
        image: access to the image; ``vector`` is the distance of what the kernel walks along the channels.
        filters: position of the filters among the buffers.
    """

    planes: tuple[Plane, ...]
    depth: int
    image: Access
    filters: int

    @property
    def plane(self) -> Plane:
        """The loops of the first channel, which all share."""
        return self.planes[0]

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.plane.tiling.row_groups, 1, self.plane.batches

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.plane.lanes

    @abstractmethod
    def sums(self, asm: Assembler, memories: Sequence[ir.Value], tile: Tile) -> list[ir.Value]:
        """Emit the sums of products of a tile, channel by channel, a vector for each ``lanes`` of its pixels."""

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        plane = self.plane
        first, end = workgroup_range(asm, plane.rows.output, self.groups[0], group[0])
        runs = tile_runs(plane.columns, plane.tiling.vectors * plane.lanes)

        def row(index: Index) -> None:
            for run in runs:
                self._run(asm, memories, TileOrigin(group[2], index, 0, 0), run)

        asm.repeat(first, end, 1, row)

    def _run(self, asm: Assembler, memories: Sequence[ir.Value], line: TileOrigin, run: TileRun) -> None:
        def every(column: Index) -> None:
            origin = TileOrigin(line.batch, line.row, column, 0)
            self._tile(asm, memories, Tile(Panel(0, 1, run.width), origin, run, None, 0))

        asm.repeat(run.start, run.end, run.width, every)

    def _tile(self, asm: Assembler, memories: Sequence[ir.Value], tile: Tile) -> None:
        totals = self.sums(asm, memories, tile)
        vectors = len(totals) // len(self.planes)
        for number, total in enumerate(totals):
            channel, vector = divmod(number, vectors)
            plane, origin, first = self.planes[channel], tile.origin, vector * self.lanes
            pixels = TileVector(0, first, 0, min(plane.lanes, tile.run.width - first))
            start = plane.epilogue.start(asm, memories, origin, pixels)
            value = plane.epilogue.finish(asm, memories, origin, pixels, asm.sum_of(start, total))
            offset = origin.offset(asm, plane.result, pixels)
            asm.store(value, memories[plane.result.memory], offset, pixels.channels)
