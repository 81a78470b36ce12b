"""What routines have in common whose layers are one kernel for sizes that are known only when it runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from sartor.codegen.ir.layer import OpenedTask, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Parameters
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.layers.kernel_routine import KernelRoutine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


class OpenRoutine(KernelRoutine):
    """A routine whose layer is one kernel for any sizes."""

    @abstractmethod
    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        """As ``parts``, of a task of open sizes."""

    def parts(self, task: Task, parameters: Parameters, machine: Machine) -> tuple[Sequence[Rewrite], KernelCode]:
        if task.opened is None:
            raise RejectionError("its sizes are known")
        return self.code(task, task.opened, parameters, machine)
