"""Matrix products by a kernel of our own: products with a weight, products of a vector, batches, attention."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.kernels.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.product import ProductLayer
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.tilings import Work, tilings
from sartor.codegen.layer import LayerKind, Task
from sartor.codegen.machine import kernel_machine
from sartor.codegen.matmul_form import product_draft, product_shape
from sartor.codegen.routine import Implementation, Parameters, Rejected
from sartor.codegen.target import Target


@dataclass(frozen=True)
class Product:
    """Matrix product in registers, the right matrix in panels, everything elementwise fused.

    Parameters: ``columns`` (rows of the left matrix) and ``vectors`` of the register tile, ``rows`` and ``panels`` of a
    workgroup, ``unroll``.
    """

    name: str = "product"

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("not a matrix product")
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        shape = product_shape(task)
        if isinstance(shape, Rejected):
            return shape
        work = Work(1, shape.rows or 1, shape.columns, shape.depth, positions_join=True)
        return [tiling.parameters() for tiling in tilings(work, machine)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a matrix product.

        Raises:
            ValueError: if there is none.
        """
        machine, draft = kernel_machine(task, target), product_draft(task)
        if isinstance(machine, Rejected) or isinstance(draft, Rejected):
            raise ValueError("not a matrix product for kernels")
        with draft.module.context:
            code = ProductLayer.of(draft, machine.lanes).contraction(Tiling.of(parameters))
        return KernelLayer(task, (draft,), draft.inputs, draft.output, code)
