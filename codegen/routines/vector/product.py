"""Matrix products by our own kernel: with a weight, of a vector, in batches, in attention."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.dot_choice import refused, worth_trying
from sartor.codegen.kernels.layers.instruction_traits import dot_traits
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.layers.product_routine import ProductRoutine
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, tilings
from sartor.codegen.kernels.vector.product import product_contraction
from sartor.codegen.mlir.kernel_machine import CPU, EVERYWHERE
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class Product(ProductRoutine):
    """Matrix product in register tiles, with the RHS in panels and elementwise ops fused.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        element: instruction that multiplies groups; None for single numbers in f32.
    """

    name: str = "product"
    element: DotElement | None = None

    @property
    def traits(self) -> Traits:
        return dot_traits(super().traits, "product", self.element)

    @property
    def devices(self) -> tuple[str, ...]:
        return EVERYWHERE if self.element is None and self.storage in (None, "f16") else CPU

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> list[Tiling] | Rejected:
        refusal = None if self.element is None else self.element.refusal(machine)
        if refusal is not None:
            return refusal
        depth = shape.depth if self.element is None else -(-shape.depth // self.element.group)
        work = Work(1, shape.rows or 1, shape.columns, depth, positions_join=True).by(self.element)
        return worth_trying(tilings(work, machine), machine, self.storage, self.element)

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        depth, is_by_weight = product.shape.depth, product.is_by_weight
        refusal = refused(machine, self.storage, self.element, depth) if is_by_weight else None
        if refusal is not None:
            raise ValueError(refusal.reason)
        code = product_contraction(product, Tiling.of(parameters), self.element)
        return KernelParts(code, factor=code.memories[0])
