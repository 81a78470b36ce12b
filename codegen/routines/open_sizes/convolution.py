"""Convolutions over images of any height and width on a CPU, by one kernel that gathers patches and multiplies them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.layer import OpenedTask, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.layers.product_routine import product_layer
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, tilings
from sartor.codegen.kernels.open_sizes.costs import OpenConvolutionCost
from sartor.codegen.kernels.open_sizes.open_convolution import GatheredRows, OpenConvolution, most_rows
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_rows import open_rows
from sartor.codegen.kernels.open_sizes.patches import gathered_product, patches_of
from sartor.codegen.kernels.windows.separable import wirings
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Smaller tiles read filters too often.
_LEAST_ROWS = 4


@dataclass(frozen=True)
class OpenConvolutionKernel(OpenRoutine):
    """Patches of an image of any size, multiplied by filters.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are places of the result.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_convolution"

    @property
    def traits(self) -> Traits:
        return Traits(fuses=True, opens=True, sizes=Tiling.names(), estimate=OpenConvolutionCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        shape = required(gathered_product(task))
        machine = required(kernel_machine(task, target))
        offered = [tiling.parameters() for tiling in fitting_tilings(shape, machine)]
        return offered or Rejected(f"patches of {shape.depth} elements do not fit a workgroup")

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        shape = required(gathered_product(task))
        (gathers, multiplies), (twin, other) = task.stages, opened.twin.stages
        patches = patches_of(gathers.task).opened(patches_of(twin.task), opened.fit)
        product = product_layer(multiplies.task, other.task, machine.lanes)
        with product.rewrite.module.context:
            rows = open_rows(product, opened.fit, Tiling.of(parameters), None)
        if product.memories[0] != multiplies.inputs.index(None) or shape.depth != patches.depth:
            raise RejectionError("the patches are not what is multiplied")
        code = OpenConvolution(GatheredRows(patches), rows, wirings(task))
        code.check()
        return [product.rewrite], code


def fitting_tilings(shape: MatmulShape, machine: Machine) -> list[Tiling]:
    """Tilings whose rows fit a workgroup's memory."""
    work = Work(1, shape.rows or 1, shape.columns, shape.depth, positions_join=True)
    most = most_rows(shape.depth)
    fitting = (replace(tiling, columns=min(tiling.columns, most)) for tiling in tilings(work, machine))
    return [*dict.fromkeys(tiling_of_rows for tiling_of_rows in fitting if tiling_of_rows.columns >= _LEAST_ROWS)]
