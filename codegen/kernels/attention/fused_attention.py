"""Attention as one kernel: scores, softmax and context of a tile of rows, without scores in memory.

A workgroup keeps rows of the queries, and goes over blocks of keys and values, which are copied a block ahead. Rows are
rescaled as larger scores are found (online softmax: Milakov and Gimelshein, 2018; FlashAttention: Dao et al., 2022,
algorithm 1). A warp has 16 rows; its probabilities stay in registers, as LHS of the second product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.kernels.attention.key_rows import KeyRows
from sartor.codegen.kernels.attention.score_rows import ScoreRows, SoftmaxRows
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, ROWS, MatrixInstruction
from sartor.codegen.kernels.tensor_cores.matrix_rhs import MatrixRows, MatrixStages
from sartor.codegen.kernels.tensor_cores.results import FinishedResult, Sums
from sartor.codegen.kernels.tensor_cores.staging import PixelRows, RowCopies, swizzled
from sartor.codegen.kernels.tensor_cores.tiling import UNIT
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_PART_BYTES = 64
"""Bytes of a query or key that are in one stage."""
_BUFFERS = 2
_LANES_OF_MATRIX = 8


@dataclass(frozen=True)
class FusedAttention:
    """The code of an attention.

    Attributes:
        queries: rows of the first product's LHS.
        keys: RHS of the first product, or the rows that it is made of if it is turned.
        values: RHS of the second product.
        memories: positions of queries, keys and values among the buffers.
        scores: ops around the first product; its operands are at ``given`` among the buffers.
        given: for the buffers of ``scores`` their positions.
        result: how the second product's sums become the result; its operands are at ``taken``.
        taken: for the buffers of ``result`` their positions.
        warps: of a workgroup, each with 16 rows.
        block: keys of a block.
        instruction: multiplies.
    """

    queries: PixelRows
    keys: MatrixRows | PixelRows
    values: MatrixRows
    memories: tuple[int, int, int]
    scores: Epilogue
    given: tuple[int, ...]
    result: FinishedResult
    taken: tuple[int, ...]
    warps: int
    block: int
    instruction: MatrixInstruction

    @property
    def lanes(self) -> int:
        """Elements of a vector: two adjacent columns."""
        return self.result.lanes

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.warps * WARP

    @property
    def rows(self) -> int:
        """Rows of a workgroup."""
        return self.warps * ROWS

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups along rows, and for each batch."""
        return -(-self.queries.rows // self.rows), 1, self.queries.batches

    @property
    def part(self) -> int:
        """Elements of a query or key in one stage."""
        return _PART_BYTES // self.instruction.bytes

    @property
    def parts(self) -> int:
        """Stages of a query or key."""
        return -(-self.queries.depth // self.part)

    @property
    def query_copies(self) -> RowCopies:
        """How queries are copied."""
        return RowCopies(self.queries, self.rows, _PART_BYTES // UNIT, self.threads, self.instruction.bytes)

    @property
    def key_stages(self) -> MatrixStages | KeyRows:
        """A part of a block of keys."""
        if isinstance(self.keys, PixelRows):
            return KeyRows(self.keys, self.block, self.part, self.threads, self.instruction)
        return MatrixStages(self.keys, self.block, self.part, self.threads, self.instruction)

    @property
    def value_stages(self) -> MatrixStages:
        """A block of values."""
        columns = self.result.sums.tile[1]
        return MatrixStages(self.values, columns, self.block, self.threads, self.instruction, paired=True)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a workgroup."""
        width = self.parts * self.part
        of_block = self.block * (width + self.result.sums.tile[1])
        return (self.rows * width + _BUFFERS * of_block) * self.instruction.bytes

    def check(self) -> None:
        """Make sure that the code can be emitted.

        Raises:
            RejectionError: if it cannot.
        """
        self.query_copies.check()
        self.key_stages.check()
        self.value_stages.check()

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit the code of one thread."""
        if not isinstance(asm, ThreadAssembler):
            raise TypeError("the code is that of a thread")
        _Writer(self, asm, memories, group).write()


@dataclass
class _Writer:
    """Emits the code."""

    code: FusedAttention
    asm: ThreadAssembler
    memories: Sequence[ir.Value]
    group: tuple[Index, Index, Index]

    def write(self) -> None:
        code, asm = self.code, self.asm
        element, width = code.instruction.element_type, code.parts * code.part
        self.thread, self.batch = asm.thread(), self.group[2]
        warp, self.lane = asm.divide(self.thread, WARP)
        self.down = asm.mul(warp, ROWS)
        self.first_row = asm.mul(self.group[0], code.rows)
        self.queries = asm.shared(code.rows * width, element)
        self.keys = asm.shared(_BUFFERS * code.block * width, element)
        self.values = asm.shared(_BUFFERS * code.block * code.result.sums.tile[1], element)
        blocks = -(-code.values.depth // code.block)
        self._copy_queries()
        self._copy_block(0, 0)
        asm.end_of_copies()
        rows = SoftmaxRows(asm)
        state = [*rows.start(), *self._zeros(code.result.sums.tile[1])]

        def step(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            _, buffer = asm.divide(number, _BUFFERS)
            asm.wait_for_copies(0)
            asm.barrier()
            upcoming = asm.add(number, 1)
            _, other = asm.divide(upcoming, _BUFFERS)
            asm.when(asm.less(upcoming, blocks), lambda: self._copy_block(upcoming, other))
            asm.end_of_copies()
            return self._block(rows, number, buffer, carried)

        state = asm.loop(0, blocks, 1, state, step)
        sums = rows.finished(state[: rows.count], state[rows.count :])
        taken = [self.memories[memory] for memory in code.taken]
        code.result.write(asm, taken, (self.batch, 0), (asm.add(self.first_row, self.down), 0), self.lane, sums)

    def _zeros(self, columns: int) -> Sums:
        kind = ir.VectorType.get([2, 2], ir.F32Type.get())
        zero = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        return [arith.constant(kind, zero)] * (columns // COLUMNS)

    def _copy_queries(self) -> None:
        code, asm = self.code, self.asm
        places = code.query_copies.places(asm, self.thread, self.first_row)
        memories = self.memories[code.memories[0]], self.queries
        for part in range(code.parts):
            origin = self.batch, self.thread, part * code.part
            code.query_copies.start(asm, memories, places, origin, part * code.rows * code.part)

    def _copy_block(self, number: Index, buffer: Index) -> None:
        """Start copying a block of keys and of values."""
        code, asm = self.code, self.asm
        first = asm.mul(number, code.block)
        keys, values = (self.memories[memory] for memory in code.memories[1:])
        size = code.block * code.part
        for part in range(code.parts):
            target = asm.add(asm.mul(buffer, code.parts * size), part * size)
            origin = self.batch, part * code.part, first
            code.key_stages.start(asm, (keys, self.keys), self.thread, origin, target)
        target = asm.mul(buffer, code.block * code.result.sums.tile[1])
        code.value_stages.start(asm, (values, self.values), self.thread, (self.batch, first, 0), target)

    def _block(self, rows: SoftmaxRows, number: Index, buffer: Index, carried: list[ir.Value]) -> list[ir.Value]:
        """Add a block of keys and values."""
        code, asm = self.code, self.asm
        given = [self.memories[memory] for memory in code.given]
        extents = code.queries.rows, code.values.depth
        scores = ScoreRows(asm, code.scores, given, extents, code.rows, self.batch, self.lane)
        first = asm.add(self.first_row, self.down), asm.mul(number, code.block)
        fresh_scores = scores.finish(self._products(buffer), first, is_whole=extents[1] % code.block == 0)
        state, probabilities, sums = rows.add(carried[: rows.count], fresh_scores, carried[rows.count :])
        return [*state, *self._contexts(buffer, probabilities, sums)]

    def _products(self, buffer: Index) -> Sums:
        """Sums of a block of scores, by 8 keys."""
        code, asm = self.code, self.asm
        sums = self._zeros(code.block)
        size = code.block * code.part
        for part in range(code.parts):
            start = asm.add(asm.mul(buffer, code.parts * size), part * size)
            for step in range(code.part // code.instruction.depth):
                left = code.instruction.split(self._query(part, step))
                for pair in range(code.block // (2 * COLUMNS)):
                    place = step * code.instruction.depth, 2 * pair * COLUMNS
                    fragments = code.key_stages.fragments(asm, self.keys, start, self.lane, place)
                    for number, fragment in enumerate(fragments):
                        right = code.instruction.split(fragment)
                        index = 2 * pair + number
                        sums[index] = code.instruction.multiply(asm, left, right, sums[index])
        return sums

    def _query(self, part: int, step: int) -> ir.Value:
        """A fragment of the warp's queries."""
        code, asm = self.code, self.asm
        unit, row = asm.divide(self.lane, 2 * _LANES_OF_MATRIX)
        place = swizzled(asm, asm.add(self.down, row), asm.add(unit, 2 * step), _PART_BYTES // UNIT)
        offset = asm.add(asm.mul(place, UNIT // code.instruction.bytes), part * code.rows * code.part)
        return asm.load_matrices(self.queries, offset, code.instruction.element_type)

    def _contexts(self, buffer: Index, probabilities: Sums, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of a block of probabilities and values."""
        code, asm = self.code, self.asm
        columns = code.result.sums.tile[1]
        start = asm.mul(buffer, code.block * columns)
        blocks = code.instruction.depth // COLUMNS
        for step in range(code.block // code.instruction.depth):
            left = code.instruction.split(self._left(probabilities[step * blocks : (step + 1) * blocks]))
            for pair in range(columns // (2 * COLUMNS)):
                place = step * code.instruction.depth, 2 * pair * COLUMNS
                fragments = code.value_stages.fragments(asm, self.values, start, self.lane, place)
                for number, fragment in enumerate(fragments):
                    index = 2 * pair + number
                    sums[index] = code.instruction.multiply(asm, left, code.instruction.split(fragment), sums[index])
        return sums

    def _left(self, blocks: Sums) -> ir.Value:
        """Sums of a product as a fragment of the next one's LHS.

        Of two bytes, a lane has the columns that it needs. Of four it has two adjacent ones in place of two that are
        four apart; the RHS has its rows in the same order.
        """
        element = self.code.instruction.element_type
        halves = [vector.extract(block, [], [half]) for block in blocks for half in range(2)]
        if self.code.instruction.bytes == 2:
            kind = ir.VectorType.get([2], element)
            parts = [arith.truncf(kind, half) for half in halves]
            numbers = [vector.extract(part, [], [index]) for part in parts for index in range(2)]
            return vector.from_elements(ir.VectorType.get([4, 2], element), numbers)
        numbers = [vector.extract(half, [], [index]) for index in range(2) for half in halves]
        return vector.from_elements(ir.VectorType.get([4, 1], element), numbers)
