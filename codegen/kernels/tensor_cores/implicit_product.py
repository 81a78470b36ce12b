"""A matrix product by ``mma.sync``, whose rows may be the windows of a convolution (implicit GEMM).

A workgroup computes a tile of the result. Stages of both operands are copied to shared memory asynchronously, some
stages ahead; warps share the tile, load fragments by ``ldmatrix`` and keep their sums in registers (as CUTLASS does:
Kerr et al., 2017; for convolutions Chetlur et al., 2014, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, DEPTH_BYTES, ROWS, MatrixInstruction, halves
from sartor.codegen.kernels.tensor_cores.matrix_rhs import MatrixRows, MatrixStages
from sartor.codegen.kernels.tensor_cores.results import Sums, TileResult
from sartor.codegen.kernels.tensor_cores.staging import PackedCopies, PixelRows, RowCopies, StagedRows, swizzled
from sartor.codegen.kernels.tensor_cores.tiling import UNIT, BlockTiling
from sartor.codegen.mlir.iree_compiler import arith, ir

_LANES_OF_MATRIX = 8


@dataclass(frozen=True)
class ImplicitProduct:
    """The code of a product.

    Attributes:
        source: rows of the LHS.
        columns: of the result.
        memories: positions of LHS and packed RHS among the buffers.
        result: how sums become the result.
        tiling: sizes.
        instruction: multiplies.
        trailer: elements that follow each panel of the packed RHS, such as scales.
        matrix: the RHS, if it is an activation; None for a packed weight.
        computed: computes rows of the LHS; None if they are copied from an image.
    """

    source: PixelRows
    columns: int
    memories: tuple[int, int]
    result: TileResult
    tiling: BlockTiling
    instruction: MatrixInstruction
    trailer: int = 0
    matrix: MatrixRows | None = None
    computed: StagedRows | None = None

    @property
    def lanes(self) -> int:
        """Elements of a vector, by which sums are finished and stored."""
        return self.result.lanes

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.tiling.threads

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups for the tiles of a result, row by row, and for each batch and part of the reduction.

        Tiles are counted along one dimension: large images have more rows of tiles than the second one counts.
        """
        down = -(-self.source.rows // self.tiling.rows)
        return down * self._across, 1, self.source.batches * self.tiling.split

    @property
    def _across(self) -> int:
        """Tiles along the columns."""
        return -(-self.columns // self.tiling.columns)

    @property
    def steps(self) -> int:
        """Stages of the whole reduction."""
        return -(-self.source.depth // self._step)

    @property
    def panel(self) -> int:
        """Elements of the packed RHS for a tile's columns, with what follows them."""
        return self.steps * self.tiling.columns * self._step + self.trailer

    @property
    def share(self) -> int:
        """Stages of a workgroup."""
        return -(-self.steps // self.tiling.split)

    @property
    def overshoots(self) -> bool:
        """Whether equal shares of the reduction reach beyond its end."""
        return self.share * self.tiling.split > self.steps

    @property
    def _step(self) -> int:
        """Elements of the reduction in a stage."""
        return self.tiling.depth // self.instruction.bytes

    @property
    def _rows(self) -> StagedRows:
        if self.computed is not None:
            return self.computed
        tiling, element_bytes = self.tiling, self.instruction.bytes
        return RowCopies(self.source, tiling.rows, tiling.units, tiling.threads, element_bytes, self.overshoots)

    @property
    def _packed(self) -> PackedCopies:
        return PackedCopies(self.tiling.columns, self.tiling.units, self.threads, self.instruction.bytes)

    @property
    def _stages(self) -> MatrixStages | None:
        if self.matrix is None:
            return None
        sizes = self.tiling.columns, self._step, self.threads
        return MatrixStages(self.matrix, *sizes, self.instruction, overshoots=self.overshoots)

    def check(self) -> None:
        """Make sure that the code can be emitted.

        Raises:
            RejectionError: if it cannot.
        """
        self._rows.check()
        if self._stages is not None:
            self._stages.check()
        if self.tiling.split > self.steps:
            raise RejectionError(f"a reduction of {self.steps} steps is not split into {self.tiling.split}")

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit the code of one thread."""
        if not isinstance(asm, ThreadAssembler):
            raise TypeError("the code is that of a thread")
        _Writer(self, asm, memories, group).write()


@dataclass
class _Writer:
    """Emits a product's code."""

    code: ImplicitProduct
    asm: ThreadAssembler
    memories: Sequence[ir.Value]
    group: tuple[Index, Index, Index]

    def write(self) -> None:
        code, asm = self.code, self.asm
        tiling, element = code.tiling, code.instruction.element_type
        step = code._step
        self.thread = asm.thread()
        self.warp, self.lane = asm.divide(self.thread, WARP)
        self.left = asm.shared(tiling.stages * tiling.rows * step, element)
        self.right = asm.shared(tiling.stages * tiling.columns * step, element)
        batch, part = asm.divide(self.group[2], tiling.split)
        self.batch = batch
        row, self.column = asm.divide(self.group[0], code._across)
        self.first_row = asm.mul(row, tiling.rows)
        # Steps beyond the end of the reduction add nothing.
        self.steps, self.first_step = code.share, asm.mul(part, code.share)
        self.left_places = code._rows.places(asm, self.thread, self.first_row)
        self.right_places = code._packed.places(asm, self.thread)
        sums = self._reduce()
        down, across = self._warp_position()
        first = asm.add(self.first_row, down), asm.add(asm.mul(self.column, tiling.columns), across)
        code.result.write(asm, self.memories, (batch, part), first, self.lane, sums)

    def _reduce(self) -> Sums:
        """The loop over stages: wait for one, start copying another, multiply."""
        asm, stages = self.asm, self.code.tiling.stages
        ahead = stages - 1
        for index in range(ahead):
            if index < self.steps:
                self._copy(index, index)
            asm.end_of_copies()

        def step(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            read, written, *sums = carried
            asm.wait_for_copies(stages - 2)
            asm.barrier()
            upcoming = asm.add(number, ahead)
            asm.when(asm.less(upcoming, self.steps), lambda: self._copy(upcoming, written))
            asm.end_of_copies()
            sums = self._multiply(read, sums)
            return [self._next(read), self._next(written), *sums]

        start = [asm.value(0), asm.value(ahead), *self._zeros()]
        return asm.loop(0, self.steps, 1, start, step)[2:]

    def _next(self, stage: ir.Value) -> ir.Value:
        following = self.asm.value(self.asm.add(stage, 1))
        is_last = arith.cmpi(arith.CmpIPredicate.eq, following, self.asm.value(self.code.tiling.stages))
        return arith.select(is_last, self.asm.value(0), following)

    def _zeros(self) -> list[ir.Value]:
        rows, columns = self.code.tiling.warp_tile
        instruction = self.code.instruction
        kind, element = ir.VectorType.get([2, 2], instruction.sum_type), instruction.sum_type
        nothing = ir.IntegerAttr.get(element, 0) if instruction.is_integer else ir.FloatAttr.get(element, 0.0)
        zero = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, nothing))
        return [zero] * ((rows // ROWS) * (columns // COLUMNS))

    def _copy(self, number: Index, stage: Index) -> None:
        """Start copying step ``number`` to a stage."""
        code, asm, tiling = self.code, self.asm, self.code.tiling
        step = code._step
        number = asm.add(self.first_step, number)
        lhs, rhs = (self.memories[memory] for memory in code.memories)
        code._rows.start(
            asm,
            (lhs, self.left),
            self.left_places,
            (self.batch, self.thread, asm.mul(number, step)),
            asm.mul(stage, tiling.rows * step),
        )
        tile = tiling.columns * step
        if code.matrix is not None and code._stages is not None:
            place = self.batch, asm.mul(number, step)
            first = asm.mul(self.column, tiling.columns)
            code._stages.start(asm, (rhs, self.right), self.thread, (*place, first), asm.mul(stage, tile))
            return
        origin = asm.add(asm.mul(self.column, code.panel), asm.mul(self._existing(number), tile))
        code._packed.start(asm, (rhs, self.right), self.right_places, origin, asm.mul(stage, tile))

    def _existing(self, number: Index) -> Index:
        """A step of the packed RHS; of those beyond its end, whose LHS is zero, the last."""
        return self.asm.minimum(number, self.code.steps - 1) if self.code.overshoots else number

    def _warp_position(self) -> tuple[Index, Index]:
        """First row and column of the warp's part of the tile."""
        rows, columns = self.code.tiling.warp_tile
        down, across = self.asm.divide(self.warp, self.code.tiling.warp_columns)
        return self.asm.mul(down, rows), self.asm.mul(across, columns)

    def _multiply(self, stage: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of a stage."""
        code, asm = self.code, self.asm
        rows, columns = code.tiling.warp_tile
        across = columns // COLUMNS
        for step in range(code.tiling.depth // DEPTH_BYTES):
            left = [self._left(stage, index, step) for index in range(rows // ROWS)]
            right = [part for index in range(across // 2) for part in self._right(stage, index, step)]
            for i, one in enumerate(left):
                for j, other in enumerate(right):
                    sums[i * across + j] = code.instruction.multiply(asm, one, other, sums[i * across + j])
        return sums

    def _left(self, stage: ir.Value, fragment: int, step: int) -> tuple[ir.Value, ...]:
        """Fragments of 16 rows: lanes 0 to 15 give their first 16 bytes, lanes 16 to 31 the second."""
        unit, row = self.asm.divide(self.lane, 2 * _LANES_OF_MATRIX)
        down, _ = self._warp_position()
        place = (self.asm.add(down, row, fragment * ROWS), self.asm.add(unit, 2 * step))
        return self.code.instruction.split(self._loaded(self.left, self.code.tiling.rows, stage, place))

    def _right(self, stage: ir.Value, fragment: int, step: int) -> list[tuple[ir.Value, ...]]:
        """Fragments of twice 8 columns: eight lanes give the first 16 bytes of 8 columns, the next eight the second."""
        if self.code._stages is not None:
            return self._turned(self.code._stages, stage, fragment, step)
        matrix, row = self.asm.divide(self.lane, _LANES_OF_MATRIX)
        eight, unit = self.asm.divide(matrix, 2)
        _, across = self._warp_position()
        column = self.asm.add(across, row, self.asm.mul(eight, COLUMNS), 2 * fragment * COLUMNS)
        place = (column, self.asm.add(unit, 2 * step))
        loaded = self._loaded(self.right, self.code.tiling.columns, stage, place)
        parts = [halves(part) for part in self.code.instruction.split(loaded, is_packed=True)]
        return [tuple(part[which] for part in parts) for which in range(2)]

    def _turned(self, stages: MatrixStages, stage: ir.Value, column: int, step: int) -> list[tuple[ir.Value, ...]]:
        """As ``_right``, of an RHS whose stages have rows of the reduction."""
        _, across = self._warp_position()
        instruction = self.code.instruction
        place = step * instruction.depth, self.asm.add(across, 2 * column * COLUMNS)
        start = self.asm.mul(stage, self.code.tiling.columns * self.code._step)
        fragments = stages.fragments(self.asm, self.right, start, self.lane, place)
        return [instruction.split(fragment) for fragment in fragments]

    def _loaded(self, memory: ir.Value, extent: int, stage: ir.Value, place: tuple[Index, Index]) -> ir.Value:
        """Four matrices of a stage of ``extent`` rows, each lane giving row and unit."""
        code, asm = self.code, self.asm
        unit = UNIT // code.instruction.bytes
        offset = asm.mul(swizzled(asm, *place, code.tiling.units), unit)
        offset = asm.add(asm.mul(stage, extent * code._step), offset)
        return asm.load_matrices(memory, offset, code.instruction.element_type)
