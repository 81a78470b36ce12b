"""The bases of routines whose layers are one kernel: over tensors as ONNX has them, or stored in another type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits, narrowest
from sartor.codegen.kernels.layers.kernel_layer import KernelCode, KernelLayer, build_kernel
from sartor.codegen.mlir.kernel_machine import CPU_ONLY, kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


@dataclass(frozen=True)
class StoringKernel(ABC):
    """A kernel whose activations and result may be stored in a narrower type.

    Attributes:
        name: the algorithm in descriptors.
        storage: element type that activations and the result are stored in; None for their own.
        output: element type that the result is stored in; None for that of the activations.
    """

    name: str
    storage: str | None = None
    output: str | None = None

    @property
    def traits(self) -> Traits:
        """The traits that follow from element types."""
        converts = self.output not in (None, self.storage)
        return Traits(precision=narrowest(self.storage, self.output), converts=converts)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that the kernel can be compiled for."""
        return CPU_ONLY

    @property
    def needs(self) -> tuple[str, ...]:
        """CPU features that the operating system has to grant, by LLVM's names."""
        return ()

    @abstractmethod
    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)


class KernelRoutine(ABC):
    """A routine whose layer is one kernel, over tensors as ONNX has them."""

    name: str

    @abstractmethod
    def parts(self, task: Task, parameters: Parameters, machine: Machine) -> tuple[Sequence[Rewrite], KernelCode]:
        """The rewrites whose operations the kernel has, and its code.

        Raises:
            RejectionError: if there is no kernel for the task.
        """

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a task.

        Raises:
            RejectionError: if there is no kernel for it.
        """
        machine = required(kernel_machine(task, target))
        rewrites, code = self.parts(task, parameters, machine)
        inputs, outputs = (
            schemas_of(tensors, layouts_of(tensors), target.device) for tensors in (task.inputs, task.results)
        )
        return KernelLayer(task, tuple(rewrites), inputs, outputs[0], code)
