"""What the three transforms of Winograd's method have in common: each is code of one workgroup."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.winograd.geometry import WinogradConvolution
from sartor.codegen.mlir.iree_compiler import ir


class WorkgroupCode:
    """Emits a part of a workgroup's code.

    Args:
        of: the convolution.
        asm: emits the code.
        memories: all buffers; the last is the workspace.
        start: offset of the workgroup's part of the workspace.
    """

    def __init__(self, of: WinogradConvolution, asm: Assembler, memories: Sequence[ir.Value], start: Index) -> None:
        self._of = of
        self._asm = asm
        self._memories = memories
        self._space = memories[-1]
        self._start = start
