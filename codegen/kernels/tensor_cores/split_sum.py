"""A reduction that several workgroups share (split-K): a kernel for its parts, and one that adds them up.

Late layers of networks have so few rows and columns that their tiles do not fill a GPU, and long reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.executable import Kernel
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.tensor_cores.implicit_product import ImplicitProduct
from sartor.codegen.kernels.tensor_cores.results import FinishedResult, PartialResult
from sartor.codegen.mlir.iree_compiler import ir

_THREADS = 128
PARTS = "parts"
"""Name of the kernel that computes them."""


@dataclass(frozen=True)
class SplitSum:
    """The code that adds parts of sums, ``[part, batch, row, column]`` in f32, and finishes the result.

    Attributes:
        parts: how many there are.
        batches: of the result.
        memory: position of the buffer of parts.
        result: finishes and stores sums.
    """

    parts: int
    batches: int
    memory: int
    result: FinishedResult

    @property
    def lanes(self) -> int:
        """Elements of a vector; a thread computes one."""
        return self.result.lanes

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return _THREADS

    @property
    def _vectors(self) -> int:
        """Vectors of one batch of the result."""
        return self.result.sums.rows * self.result.sums.columns // self.lanes

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups along the result, and for each batch."""
        return -(-self._vectors // _THREADS), 1, self.batches

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit the code of one thread."""
        if not isinstance(asm, ThreadAssembler):
            raise TypeError("the code is that of a thread")
        number = asm.add(asm.mul(group[0], _THREADS), asm.thread())
        exists = True if self._vectors % _THREADS == 0 else asm.less(number, self._vectors)
        asm.when(exists, lambda: self._finish(asm, memories, group[2], number))

    def _finish(self, asm: ThreadAssembler, memories: Sequence[ir.Value], batch: Index, number: Index) -> None:
        size = self._vectors * self.lanes
        first = asm.add(asm.mul(batch, size), asm.mul(number, self.lanes))
        offsets = [asm.add(first, part * self.batches * size) for part in range(self.parts)]
        loaded = [asm.load(memories[self.memory], offset, self.lanes) for offset in offsets]
        total = loaded[0]
        for part in loaded[1:]:
            total = asm.sum_of(total, part)
        row, column = asm.divide(number, self.result.sums.columns // self.lanes)
        origin = TileOrigin(batch, 0, row, column)
        self.result.finish(asm, memories, origin, TileVector(0, 0, 0, self.lanes), total)


@dataclass(frozen=True)
class SplitLayer(KernelLayer):
    """A layer of two kernels, of which the second, ``code``, reads what the first computes.

    Attributes:
        parts: code of the first kernel.
    """

    parts: ImplicitProduct = field(kw_only=True)

    @staticmethod
    def split(layer: KernelLayer, product: ImplicitProduct) -> SplitLayer:
        """A layer by a product whose result is finished, as one by parts of it.

        Raises:
            TypeError: if the product does not finish its result.
        """
        finished = product.result
        if not isinstance(finished, FinishedResult):
            raise TypeError("the product's result is in parts already")
        memory, batches = finished.stored.memory, product.source.batches
        partial = replace(product, result=PartialResult(finished.sums, batches, memory))
        stored = replace(finished.stored, memory=memory + 1)
        added = SplitSum(product.tiling.split, batches, memory, replace(finished, stored=stored))
        given = (layer.task, layer.rewrites, layer.inputs, layer.output, added)
        return SplitLayer(*given, parts=partial)

    @property
    def groups(self) -> tuple[tuple[int, int, int], ...]:
        """Number of workgroups in each dimension, of both kernels."""
        return self.parts.groups, *super().groups

    @property
    def _between(self) -> TensorType:
        """Type of the parts."""
        source = self.parts.source
        return TensorType((self.parts.tiling.split, source.batches, source.rows, self.parts.columns), F32)

    def _kernels(self) -> tuple[Kernel, Kernel]:
        whole = super().kernel
        first = replace(
            whole,
            name=PARTS,
            results=(self._between,),
            groups=self.parts.groups,
            lanes=self.parts.lanes,
            threads=self.parts.threads,
        )
        return first, replace(whole, reads=(*whole.reads, self._between))

    def executables(self, target: Target) -> tuple[str, ...]:
        """Text of both kernels."""
        first, second = self._kernels()
        return first.executable(target, self.parts.write), second.executable(target, self.code.write)

    @property
    def body(self) -> str:
        """The layer's function, which dispatches both kernels."""
        first, second = self._kernels()
        names = [f"%a{index}" for index in range(len(first.reads))]
        arguments = ", ".join(f"{name}: {read}" for name, read in zip(names, first.reads, strict=True))
        result = second.results[0]
        return "\n".join(
            [
                f"util.func public @layer({arguments}) -> {result} {{",
                f"  {first.dispatch(names).replace('%r', '%p', 1)}",
                f"  {second.dispatch([*names, '%p'])}",
                f"  util.return %r : {result}",
                "}",
            ]
        )
