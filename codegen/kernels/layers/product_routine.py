"""The base of routines for matrix products: the shape, the machine, and how a layer becomes a kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts
from sartor.codegen.kernels.layers.kernel_routine import StoringKernel
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.tiling import Sizes
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class ProductRoutine(StoringKernel):
    """A kernel of matrix products: with a weight, or of two activations, as in attention."""

    @abstractmethod
    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> Sequence[Sizes] | Rejected:
        """Sizes worth trying, best guess first; Rejected with the reason if there are none."""

    @abstractmethod
    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        """The kernel.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("not a matrix product")
        machine = required(kernel_machine(task, target, self.storage, self.devices))
        shape = required(product_shape(task))
        tilings = self.tilings(task, shape, machine)
        return tilings if isinstance(tilings, Rejected) else [sizes.parameters() for sizes in tilings]

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a matrix product.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        machine = kernel_machine(task, target, devices=self.devices)
        if isinstance(machine, Rejected):
            raise RejectionError("not a matrix product for kernels")
        product = product_layer(task, None if task.opened is None else task.opened.twin, machine.lanes)
        rewrite = product.rewrite
        with rewrite.module.context:
            parts = self.parts(product, parameters, machine)
        inputs = schemas_of(task.inputs, rewrite.inputs, target.device, self.storage)
        (output,) = schemas_of(task.results, rewrite.outputs, target.device, self.output or self.storage)
        return KernelLayer.of(task, rewrite, inputs, output, parts, self.needs)


def product_layer(task: Task, twin: Task | None, lanes: int) -> ProductLayer:
    """The product of a task.

    Args:
        task: the task.
        twin: the same with other sizes, if the number of rows is known only when it runs; None if it is known.
        lanes: elements of a vector.

    Raises:
        RejectionError: if it is no product.
    """
    rewrite = product_rewrite(task)
    if isinstance(rewrite, Rejected):
        raise RejectionError(rewrite.reason)
    with rewrite.module.context:
        product = ProductLayer.of(rewrite, lanes)
    product.twin = None if twin is None else product_layer(twin, None, lanes)
    return product
