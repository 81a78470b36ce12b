"""Matrix products of many rows by weights in blocks of small integers, whose panels are decoded once for all rows."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_costs import PanelCost
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine, EncodedProduct
from sartor.codegen.kernels.encoded.block_tilings import refused_panels, tilings_of_panels
from sartor.codegen.kernels.encoded.decoded_panels import DecodedPanels
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class BlockPanels(BlockRoutine):
    """Multiplies f32 by panels that are decoded to f32."""

    name: str = "block_panels"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_panels", sizes=Tiling.names(), reads_codes=True, cost=PanelCost())

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        if weight.one_of > 1:
            return Rejected("it would multiply the parts of rows that are zero, too")
        return refused_panels(shape)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return tilings_of_panels(shape, machine)

    def parts(self, product: EncodedProduct) -> KernelParts:
        code = DecodedPanels(product.nest, product.blocks, product.image, product.memories)
        return KernelParts(code, code.workspace, product.memories[0])
