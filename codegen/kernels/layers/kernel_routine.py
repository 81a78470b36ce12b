"""What routines have in common whose layers are one kernel, over tensors as ONNX has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.kernels.layers.kernel_layer import KernelCode, KernelLayer, build_kernel
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


class KernelRoutine(ABC):
    """A routine whose layer is one kernel, over tensors as ONNX has them."""

    name: str

    @abstractmethod
    def parts(self, task: Task, parameters: Parameters, machine: Machine) -> tuple[Sequence[Rewrite], KernelCode]:
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
        rewrites, code = self.parts(task, parameters, machine)
        inputs, outputs = (schemas_of(each, layouts_of(each), target.device) for each in (task.inputs, task.results))
        return KernelLayer(task, tuple(rewrites), inputs, outputs[0], code)
