"""The transform of Winograd's filters within a kernel that reads them as the model has them."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.winograd.geometry import WinogradConvolution
from sartor.codegen.kernels.winograd.matrix import transform
from sartor.codegen.kernels.winograd.workgroup_code import WorkgroupCode
from sartor.codegen.mlir.iree_compiler import ir


class FilterTransform(WorkgroupCode):
    """Emits G g G^T of panels of filters in f32, on one vector of channels at a time."""

    def __init__(self, of: WinogradConvolution, asm: Assembler, memories: Sequence[ir.Value], start: Index) -> None:
        super().__init__(of, asm, memories, start)
        self._given = memories[of.memories[1]]
        self._rows, self._columns = (transforms.filter for transforms in of.transforms)

    def write(self, panel: Index, number: Index) -> None:
        """Emit the transform of a panel.

        Args:
            panel: index of the panel.
            number: its number among those of the workgroup.
        """
        of, asm = self._of, self._asm
        given = asm.mul(panel, of.taps * of.depth * of.panel)
        target = asm.add(self._start, of.scales, asm.mul(number, of.panel_elements))

        def every(vector: Index, carried: list[ir.Value]) -> list[ir.Value]:
            offset = asm.mul(vector, of.lanes)
            self._vector(asm.add(given, offset), asm.add(target, offset))
            return carried

        asm.loop(0, of.depth * of.tiling.vectors, 1, [], every)

    def _vector(self, given: Index, target: Index) -> None:
        of, asm = self._of, self._asm
        height, width = of.rows.kernel, of.columns.kernel
        columns = []
        for column in range(width):
            taps = [self._tap(given, row * width + column) for row in range(height)]
            columns.append(transform(asm, self._rows, taps))
        for row in range(of.height):
            for column, value in enumerate(
                transform(asm, self._columns, [vector_of_column[row] for vector_of_column in columns])
            ):
                asm.store(value, self._space, asm.add(target, (row * of.width + column) * of.filters), of.lanes)

    def _tap(self, given: Index, tap: int) -> ir.Value:
        of = self._of
        return self._asm.load(self._given, self._asm.add(given, tap * of.depth * of.panel), of.lanes)
