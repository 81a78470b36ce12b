"""Sizes of a matrix product on a GPU, and which of them a GPU can run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Self

from sartor.codegen.ir.machines.cuda import WARP, CudaArchitecture
from sartor.codegen.ir.machines.occupancy import MOST_REGISTERS, Footprint
from sartor.codegen.ir.variants.routine import Parameters, integer
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, DEPTH_BYTES, ROWS, MatrixInstruction

UNIT = 16
"""Bytes that the widest copy moves, and that a row of a matrix has that one lane of ``ldmatrix`` gives."""

# A warp's accumulators and two steps of operands have to fit 255 registers; with parts of operands, fewer.
_MOST_ACCUMULATORS = 128
_MOST_SPLIT_ACCUMULATORS = 64
# What a warp multiplies of a stage before it loads more.
_STEP_BYTES = 64


@dataclass(frozen=True)
class BlockTiling:
    """Sizes of a workgroup's product.

    Attributes:
        rows: of the result that a workgroup computes.
        columns: of the result that a workgroup computes.
        depth: bytes of the reduction in one stage, 64 or 128 per row.
        warp_rows: warps that share the rows.
        warp_columns: warps that share the columns.
        stages: parts of the reduction that are in shared memory, being copied or multiplied.
        split: workgroups that share the reduction.
    """

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int
    split: int = 1

    @classmethod
    def of(cls, parameters: Parameters) -> Self:
        """The tiling of a variant's parameters."""
        return cls(**{field.name: integer(parameters[field.name]) for field in fields(cls)})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(field.name for field in fields(cls))

    def parameters(self) -> dict[str, int]:
        """The parameters of the variant."""
        return asdict(self)

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.warp_rows * self.warp_columns * WARP

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Rows and columns of a warp's result."""
        return self.rows // self.warp_rows, self.columns // self.warp_columns

    @property
    def units(self) -> int:
        """Copies of the widest kind in a row of a stage."""
        return self.depth // UNIT

    @property
    def shared_bytes(self) -> int:
        """Shared memory of all stages."""
        return self.stages * (self.rows + self.columns) * self.depth

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums."""
        rows, columns = self.warp_tile
        return rows * columns // WARP

    @property
    def registers(self) -> int:
        """Registers that the assembler gives to a thread, about: it was fitted to what ``ptxas`` said of kernels.

        Sums, fragments of both operands of a step, addresses of copies, and the same for the loop and the result.
        """
        copies = (self.rows + self.columns) * self.units // self.threads
        steps = self.depth // _STEP_BYTES
        return min(MOST_REGISTERS, 22 + 2 * self.accumulators + 2 * copies + 8 * steps)

    def resident(self, gpu: CudaArchitecture) -> int:
        """Workgroups that a multiprocessor holds, by shared memory, threads and registers."""
        return max(1, Footprint(self.threads, self.registers, self.shared_bytes).resident(gpu))

    def fits(self, gpu: CudaArchitecture, instruction: MatrixInstruction) -> bool:
        """Whether a workgroup can run on a GPU, and its warps' tiles are made of whole instructions."""
        rows, columns = self.warp_tile
        most = _MOST_ACCUMULATORS if instruction.parts == 1 else _MOST_SPLIT_ACCUMULATORS
        return (
            rows % ROWS == columns % (2 * COLUMNS) == 0
            and rows > 0 < columns
            and self.depth % DEPTH_BYTES == 0
            and self.accumulators <= most
            and self.shared_bytes <= gpu.shared_bytes
            and (self.rows * self.units) % self.threads == 0
            and (self.columns * self.units) % self.threads == 0
        )


@dataclass(frozen=True)
class BlockWork:
    """The product that is divided.

    Attributes:
        batches: how many there are.
        rows: of the result.
        columns: of the result.
        depth: bytes of the reduction.
    """

    batches: int
    rows: int
    columns: int
    depth: int

    def groups(self, tiling: BlockTiling) -> int:
        """Workgroups that compute it."""
        rows, columns = -(-self.rows // tiling.rows), -(-self.columns // tiling.columns)
        return rows * columns * self.batches * tiling.split


_SHAPES = (
    # rows, columns, warps along rows, along columns
    *((32, 32, 2, 1), (32, 32, 2, 2), (32, 64, 2, 2), (64, 32, 2, 2), (16, 64, 1, 2), (16, 128, 1, 4)),
    *((64, 64, 2, 2), (64, 64, 4, 2), (64, 128, 2, 2), (64, 128, 2, 4), (128, 64, 2, 2), (128, 64, 4, 2)),
    *((128, 128, 2, 4), (128, 128, 4, 2), (128, 256, 2, 4), (256, 128, 4, 2)),
)
_SPLITS = (2, 4, 8)
# With fewer steps of a workgroup than this, starting it and adding its part costs more than is won.
_FEWEST_STEPS = 4


def block_tilings(work: BlockWork, gpu: CudaArchitecture, instruction: MatrixInstruction) -> Iterator[BlockTiling]:
    """Tilings that a GPU can run and that are no larger than the product."""
    for (rows, columns, down, across), depth, stages in itertools.product(_SHAPES, (64, 128), (3, 4)):
        tiling = BlockTiling(rows, columns, depth, down, across, stages)
        if not tiling.fits(gpu, instruction) or _exceeds(work.rows, rows) or _exceeds(work.columns, columns):
            continue
        if depth > 64 and work.depth <= 64:
            continue
        yield tiling
        for split in _SPLITS:
            steps = -(-work.depth // depth) // split
            if steps >= _FEWEST_STEPS and work.groups(tiling) * split <= 2 * gpu.multiprocessors * tiling.resident(gpu):
                yield replace(tiling, split=split)


def _exceeds(extent: int, tile: int) -> bool:
    """Whether half a tile would do."""
    return tile >= 2 * max(extent, 32 if tile > 16 else 16)
