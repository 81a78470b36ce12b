"""Matrix products by our own kernel: with a weight, of a vector, in batches, in attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits, narrowest
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.analytic_costs import DirectCost, DotCost
from sartor.codegen.kernels.layers.dot_choice import refused, worth_trying
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, tilings
from sartor.codegen.kernels.vector.product import product_contraction
from sartor.codegen.mlir.machine import kernel_machine


@dataclass(frozen=True)
class Product:
    """Matrix product in register tiles, with the RHS in panels and elementwise ops fused.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        name: the algorithm in descriptors.
        storage: element type that activations are stored in; None for their own.
        element: instruction that multiplies groups; None for single numbers in f32.
        output: element type that the result is stored in; None for that of the activations.
    """

    name: str = "product"
    storage: str | None = None
    element: DotElement | None = None
    output: str | None = None

    @property
    def traits(self) -> Traits:
        converts = self.output not in (None, self.storage)
        common = Traits(precision=narrowest(self.storage, self.output), converts=converts)
        if self.element is None:
            return replace(common, family="product", cost=DirectCost())
        cost = DotCost(self.element.group, self.element.dtype)
        return replace(common, family="dots", instruction=self.element, cost=cost)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("not a matrix product")
        machine = kernel_machine(task, target, self.storage)
        if isinstance(machine, Rejected):
            return machine
        shape = product_shape(task)
        if isinstance(shape, Rejected):
            return shape
        refusal = None if self.element is None else self.element.refusal(machine)
        if refusal is not None:
            return refusal
        depth = shape.depth if self.element is None else -(-shape.depth // self.element.group)
        work = Work(1, shape.rows or 1, shape.columns, depth, positions_join=True).by(self.element)
        found = worth_trying(tilings(work, machine), machine, self.storage, self.element)
        return [each.parameters() for each in found]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
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
            layer = ProductLayer.of(rewrite, machine.lanes)
            refusal = refused(machine, self.storage, self.element, layer.shape.depth) if layer.is_by_weight else None
            if refusal is not None:
                raise ValueError(refusal.reason)
            code = product_contraction(layer, Tiling.of(parameters), self.element)
        inputs = schemas_of(task.inputs, rewrite.inputs, target.device, self.storage)
        (output,) = schemas_of(task.results, rewrite.outputs, target.device, self.output or self.storage)
        return KernelLayer(task, (rewrite,), inputs, output, code)
