"""What kernels have in common whose sizes are known only when they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sartor.codegen.ir.layer import OpenedTask, Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.kernels.layers.kernel_layer import KernelCode, KernelLayer, build_kernel
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


class OpenRoutine(ABC):
    """A routine whose layer is one kernel for any sizes."""

    name: str

    @abstractmethod
    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        """The rewrites whose operations the kernel has, and its code.

        Raises:
            ValueError: if there is no kernel for the task.
        """

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a task.

        Raises:
            ValueError: if there is no kernel for it.
        """
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            raise ValueError(machine.reason)
        if task.opened is None:
            raise ValueError("its sizes are known")
        rewrites, code = self.code(task, task.opened, parameters, machine)
        inputs, outputs = (schemas_of(each, layouts_of(each), target.device) for each in (task.inputs, task.results))
        return KernelLayer(task, tuple(rewrites), inputs, outputs[0], code)
