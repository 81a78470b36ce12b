"""Matrix products with AMX: with a weight, or of two activations, as in attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import is_by_weight, product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits, narrowest
from sartor.codegen.kernels.amx.product import tile_product
from sartor.codegen.kernels.amx.tilings import TileTiling, TileWork, tile_tilings
from sartor.codegen.kernels.isa.amx import BFLOAT, TileElement
from sartor.codegen.kernels.layers.analytic_costs import TileCost
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.mlir.machine import kernel_machine


@dataclass(frozen=True)
class TileProduct:
    """Matrix product in AMX's tiles, with elementwise ops fused.

    Parameters: those of ``TileTiling``.

    Attributes:
        name: the algorithm in descriptors.
        storage: element type that activations are stored in.
        element: instruction that multiplies tiles.
        output: element type that the result is stored in; None for that of the activations.
    """

    name: str = "tiles"
    storage: str | None = BFLOAT.dtype
    element: TileElement = BFLOAT
    output: str | None = None

    @property
    def traits(self) -> Traits:
        return Traits(
            "tiles",
            instruction=self.element,
            precision=narrowest(self.storage, self.output),
            converts=self.output not in (None, self.storage),
            cost=TileCost(self.element.dtype),
        )

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("not a matrix product")
        machine = kernel_machine(task, target, self.storage)
        if isinstance(machine, Rejected):
            return machine
        if refusal := self.element.refusal(machine):
            return refusal
        shape = product_shape(task)
        if isinstance(shape, Rejected):
            return shape
        is_copied = not is_by_weight(task)
        if is_copied and self.element.is_quantised:
            return Rejected("integers are multiplied by weights only")
        sizes = (1, shape.rows or 1, shape.columns, shape.depth, 1)
        batches = math.prod(shape.batches)
        work = TileWork(*sizes, positions_join=True, batches=batches, is_copied=is_copied)
        return [tiling.parameters() for tiling in tile_tilings(work, machine, self.element)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a matrix product.

        Raises:
            ValueError: if there is no kernel for the layer.
        """
        machine, rewrite = kernel_machine(task, target), product_rewrite(task)
        if isinstance(machine, Rejected) or isinstance(rewrite, Rejected):
            raise ValueError("not a matrix product for kernels")
        with rewrite.module.context:
            code = tile_product(ProductLayer.of(rewrite, machine.lanes), TileTiling.of(parameters), self.element)
        inputs = schemas_of(task.inputs, rewrite.inputs, target.device, self.storage)
        (output,) = schemas_of(task.results, rewrite.outputs, target.device, self.output or self.storage)
        return KernelLayer(task, (rewrite,), inputs, output, code, code.workspace, (self.element.feature,))
