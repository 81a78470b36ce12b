"""Keys that lie as rows ``[keys, depth]``: copied as queries are, and read by ``ldmatrix`` as they lie."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, MatrixInstruction, halves
from sartor.codegen.kernels.tensor_cores.staging import PixelRows, RowCopies, swizzled
from sartor.codegen.kernels.tensor_cores.tiling import UNIT
from sartor.codegen.mlir.iree_compiler import ir

_LANES_OF_MATRIX = 8


@dataclass(frozen=True)
class KeyRows:
    """Stages of keys in shared memory: how a thread fills them, and how a warp reads them, as ``MatrixStages``.

    Attributes:
        source: the keys.
        block: keys of a stage.
        part: elements of a key in a stage.
        threads: of the workgroup.
        instruction: multiplies.
    """

    source: PixelRows
    block: int
    part: int
    threads: int
    instruction: MatrixInstruction

    @property
    def _units(self) -> int:
        """Units of 16 bytes in a row of a stage."""
        return self.part * self.instruction.bytes // UNIT

    @property
    def _copies(self) -> RowCopies:
        return RowCopies(self.source, self.block, self._units, self.threads, self.instruction.bytes)

    def check(self) -> None:
        """Make sure that the code can be emitted.

        Raises:
            RejectionError: if it cannot.
        """
        self._copies.check()

    def start(
        self,
        asm: ThreadAssembler,
        memories: tuple[ir.Value, ir.Value],
        thread: Index,
        origin: tuple[Index, Index, Index],
        target: Index,
    ) -> None:
        """Start the thread's copies of one stage; arguments as for ``MatrixStages``, with keys for columns."""
        batch, first, key = origin
        places = self._copies.places(asm, thread, key)
        self._copies.start(asm, memories, places, (batch, thread, first), target)

    def fragments(
        self, asm: ThreadAssembler, memory: ir.Value, stage: Index, lane: Index, place: tuple[int, Index]
    ) -> list[ir.Value]:
        """Fragments of twice 8 keys from element and key ``place`` of the stage at offset ``stage`` on."""
        element, key = place
        matrix, inside = asm.divide(lane, _LANES_OF_MATRIX)
        eight, unit = asm.divide(matrix, 2)
        row = asm.add(key, inside, asm.mul(eight, COLUMNS))
        unit = asm.add(unit, element * self.instruction.bytes // UNIT)
        offset = asm.mul(swizzled(asm, row, unit, self._units), UNIT // self.instruction.bytes)
        return [*halves(asm.load_matrices(memory, asm.add(stage, offset), self.instruction.element_type))]
