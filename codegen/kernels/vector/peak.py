"""Kernels that measure the machine's peaks: multiply-adds in registers, and sequential reads of memory.

They are the two ceilings of a roofline (Williams, Waterman and Patterson, 2009, section 3), measured by the same kind
of code as the layers that are compared with them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Variant, describe, dtype_of
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.layers.kernel_layer import DeferredKernel, KernelLayer
from sartor.codegen.kernels.loops.partition import PartitionedKernel
from sartor.codegen.mlir.iree_compiler import arith, ir, vector
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

_DTYPE = "f32"
# Integer arguments of a measurement are zeros, floats are random, and a gigabyte of random floats takes seconds.
_READ_DTYPE = "i32"
_ELEMENT_BYTES = 4
# The two factors, which all chains share.
_FACTORS = 2
# Independent sums of a reading workgroup, more than the latency of an addition requires.
_SUMS = 8


@dataclass(frozen=True)
class MultiplyAdds(PartitionedKernel):
    """Workgroups that multiply and add in registers only, in as many independent chains as a kernel has accumulators.

    Attributes:
        lanes: elements of a vector.
        chains: number of accumulators.
        steps: multiply-adds of each chain.
        workgroups: workgroups, which all do the same.
    """

    lanes: int
    chains: int
    steps: int
    workgroups: int

    @property
    def source(self) -> TensorType:
        """The factors, and the initial value of each chain; with equal ones the compiler would merge the chains."""
        return TensorType(((_FACTORS + self.chains) * self.lanes,), _DTYPE)

    @property
    def result(self) -> TensorType:
        """The sums of every chain of every workgroup."""
        return TensorType((self.workgroups * self.chains * self.lanes,), _DTYPE)

    @property
    def operations(self) -> int:
        """Floating-point operations of all workgroups; a multiply-add counts as two."""
        return 2 * self.steps * self.result.elements

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        source, result = memories
        one, other, *starts = (
            asm.load(source, index * self.lanes, self.lanes) for index in range(_FACTORS + self.chains)
        )

        def every(_: Index, carried: list[ir.Value]) -> list[ir.Value]:
            return [vector.fma(one, other, sums) for sums in carried]

        begin = asm.mul(group[0], self.chains * self.lanes)
        for position, total in enumerate(asm.loop(0, self.steps, 1, starts, every)):
            asm.store(total, result, asm.add(begin, position * self.lanes), self.lanes)


@dataclass(frozen=True)
class Reading(PartitionedKernel):
    """Workgroups that each sum up a part of memory, so that all of it has to be read.

    Attributes:
        lanes: elements of a vector.
        turns: iterations of the loop of one workgroup.
        workgroups: workgroups that partition the memory.
    """

    lanes: int
    turns: int
    workgroups: int

    @staticmethod
    def of(lanes: int, size: int, workgroups: int) -> Reading:
        """Workgroups that read about ``size`` bytes each."""
        return Reading(lanes, size // (_SUMS * lanes * _ELEMENT_BYTES), workgroups)

    @property
    def part(self) -> int:
        """Elements that one workgroup reads."""
        return self.turns * _SUMS * self.lanes

    @property
    def source(self) -> TensorType:
        """Type of the memory that is read."""
        return TensorType((self.workgroups * self.part,), _READ_DTYPE)

    @property
    def result(self) -> TensorType:
        """A vector of each workgroup."""
        return TensorType((self.workgroups * self.lanes,), _READ_DTYPE)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        source, result = memories
        begin = asm.mul(group[0], self.part)

        def every(position: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(begin, position)
            read = [asm.load(source, asm.add(start, index * self.lanes), self.lanes) for index in range(_SUMS)]
            return [arith.addi(total, number) for total, number in zip(carried, read, strict=True)]

        zero = asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0))
        totals = asm.loop(0, self.part, _SUMS * self.lanes, [zero] * _SUMS, every)
        total = functools.reduce(arith.addi, totals)
        asm.store(total, result, asm.mul(group[0], self.lanes), self.lanes)


@dataclass(frozen=True)
class Roofline:
    """The routine of one such kernel. It belongs to no layer of a network: its task follows from its code.

    Attributes:
        name: the algorithm in descriptors.
        code: the kernel.
    """

    name: str
    code: MultiplyAdds | Reading

    @property
    def task(self) -> Task:
        """A task with the kernel's types; its body is never run."""
        source, result = self.code.source, self.code.result
        body = f"""util.func private @layer(%arg0: {source}) -> {result} {{
  %empty = tensor.empty() : {result}
  util.return %empty : {result}
}}"""
        key = hashlib.sha256(f"{self.name} {body}".encode()).hexdigest()[:16]
        return Task(key, LayerKind.FIXED, body, (source,), (), (result,))

    def variant(self, target: Target) -> Variant:
        """The kernel as a variant, which can be measured."""
        task, parameters = self.task, asdict(self.code)
        layer = self.layer(task, parameters, target)
        code = layer.implementation(DeferredKernel.of(self, task, parameters, target))
        return Variant(describe(self, task, parameters, target), target.device, dtype_of(task), code)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel; ``parameters`` repeat the sizes that it has already."""
        source, result = (Schema.plain(tensor, target.device) for tensor in (*task.inputs, *task.results))
        return KernelLayer(task, (Rewrite.plain(task),), (source,), result, self.code)
