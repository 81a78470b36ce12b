"""Images of any height and width that are joined, and the product that follows, by one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import product_shape
from sartor.codegen.ir.layer import LayerKind, OpenedTask, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.layers.product_routine import product_layer
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.open_sizes.costs import OpenConvolutionCost
from sartor.codegen.kernels.open_sizes.open_convolution import OpenConvolution
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_rows import open_rows
from sartor.codegen.kernels.windows.separable import wirings
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.routines.open_sizes.convolution import fitting_tilings
from sartor.codegen.routines.open_sizes.join import check_join, open_join

_STAGES = 2


@dataclass(frozen=True)
class OpenJoinedProduct(OpenRoutine):
    """Rows that are joined for a few register tiles at a time, multiplied by a weight.

    Parameters: those of ``Tiling``.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_joined_product"

    @property
    def traits(self) -> Traits:
        return Traits(fuses=True, opens=True, sizes=Tiling.names(), estimate=OpenConvolutionCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = required(kernel_machine(task, target))
        if task.opened is None or len(task.stages) != _STAGES or task.stages[1].task.kind is not LayerKind.CONTRACTION:
            return Rejected("no images of open sizes that are joined before a product")
        joins, multiplies = task.stages
        shape = required(product_shape(multiplies.task))
        check_join(joins.task, machine.lanes)
        groups = many_workgroups(shape.rows or 1, machine.threads)
        # Workgroups that partition the panels would all join the rows.
        listed = [replace(tiling, row_groups=groups, panel_groups=1) for tiling in fitting_tilings(shape, machine)]
        return [tiling.parameters() for tiling in dict.fromkeys(listed)] or Rejected("its rows do not fit a workgroup")

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        (joins, multiplies), (twin, other) = task.stages, opened.twin.stages
        rewrite, rows = open_join(joins.task, replace(opened, twin=twin.task), 1, 1, machine.lanes)
        product = product_layer(multiplies.task, other.task, machine.lanes)
        with product.rewrite.module.context:
            multiplied = open_rows(product, opened.fit, Tiling.of(parameters), None)
        if product.memories[0] != multiplies.inputs.index(None) or product.shape.depth != rows.depth:
            raise RejectionError("what is joined is not what is multiplied")
        code = OpenConvolution(rows, multiplied, wirings(task))
        code.check()
        return [rewrite, product.rewrite], code
