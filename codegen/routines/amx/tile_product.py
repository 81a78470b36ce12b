"""Matrix products with AMX: with a weight, or of two activations, as in attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, is_by_weight
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.amx.product import tile_product
from sartor.codegen.kernels.amx.tilings import TileTiling, TileWork, tile_tilings
from sartor.codegen.kernels.isa.amx import BFLOAT, TileElement
from sartor.codegen.kernels.layers.instruction_traits import tile_traits
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.layers.product_routine import ProductRoutine
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class TileProduct(ProductRoutine):
    """Matrix product in AMX's tiles, with elementwise ops fused.

    Parameters: those of ``TileTiling``.

    Attributes:
        element: instruction that multiplies tiles.
    """

    name: str = "tiles"
    storage: str | None = BFLOAT.dtype
    element: TileElement = BFLOAT

    @property
    def traits(self) -> Traits:
        return tile_traits(super().traits, self.element, TileTiling.names())

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.element.feature,)

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> list[TileTiling] | Rejected:
        if refusal := self.element.refusal(machine):
            return refusal
        if shape.shares_lhs:
            return Rejected("one LHS is multiplied by several matrices")
        is_copied = not is_by_weight(task)
        if is_copied and self.element.is_quantised:
            return Rejected("integers are multiplied by weights only")
        sizes = (1, shape.rows or 1, shape.columns, shape.depth, 1)
        batches = math.prod(shape.batches)
        work = TileWork(*sizes, positions_join=True, batches=batches, is_copied=is_copied)
        return tile_tilings(work, machine, self.element)

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        code = tile_product(product, TileTiling.of(parameters), self.element)
        return KernelParts(code, code.workspace, code.memories[0])
