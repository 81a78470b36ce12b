"""What kernels of attention on a CPU have in common: what they compute, their tiles, and how routines make them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Parameters, integer
from sartor.codegen.kernels.attention.attention_form import AttentionForm, attention_form
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.layers.kernel_routine import KernelRoutine
from sartor.codegen.kernels.loops.partition import PartitionedKernel
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

FLOAT_BYTES = 4


@dataclass(frozen=True)
class AttentionKernel(PartitionedKernel, ABC):
    """A kernel of attention.

    Attributes:
        form: what it computes.
        rows: queries of a tile.
        vectors: vectors of keys whose scores are computed at once.
        lanes: elements of a vector.
        workgroups: workgroups that partition its tiles or steps.
    """

    form: AttentionForm
    rows: int
    vectors: int
    lanes: int
    workgroups: int

    @abstractmethod
    def check(self) -> None:
        """Make sure that a workgroup's memory is large enough.

        Raises:
            RejectionError: if it is not.
        """

    @abstractmethod
    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""


class AttentionRoutine(KernelRoutine):
    """A routine whose layer is one kernel of attention.

    Parameters: ``rows`` of a tile, ``vectors`` of keys, and ``groups``, workgroups that partition the work.

    Attributes:
        code: the class of its kernels.
    """

    code: ClassVar[type[AttentionKernel]]

    def parts(self, task: Task, parameters: Parameters, machine: Machine) -> tuple[Sequence[Rewrite], KernelCode]:
        form, rewrites = attention_form(task)
        rows, vectors, groups = (integer(parameters[name]) for name in ("rows", "vectors", "groups"))
        code = self.code(form, rows, vectors, machine.lanes, groups)
        code.check()
        return rewrites, code
