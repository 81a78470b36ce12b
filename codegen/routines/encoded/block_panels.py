"""Matrix products of many rows by weights in blocks of small integers, whose panels are decoded once for all rows."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_dots import BlockDots
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine, EncodedProduct, refused_dots
from sartor.codegen.kernels.encoded.block_tilings import refused_panels, tilings_of_panels
from sartor.codegen.kernels.encoded.decoded_panels import DecodedPanels
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine

_BYTE = 8


@dataclass(frozen=True)
class BlockPanels(BlockRoutine):
    """Multiplies f32 by panels that are decoded to f32."""

    name: str = "block_panels"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_panels", sizes=Tiling.names())

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return refused_panels(shape)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return tilings_of_panels(shape, machine)

    def parts(self, product: EncodedProduct) -> KernelParts:
        code = DecodedPanels(product.nest, product.blocks, product.image, product.memories)
        return KernelParts(code, code.workspace, product.memories[0])


@dataclass(frozen=True)
class BlockPanelDots(BlockRoutine):
    """Rounds rows to 8 bits, block by block, and multiplies them by panels whose codes are copied to bytes.

    Attributes:
        storage: the type that the kernel computes in; activations and the result have the model's.
        element: instruction that multiplies groups of integers without a sign by signed ones.
    """

    name: str = "block_panel_dots"
    storage: str | None = QUANTISED
    element: DotElement = INTEGER_DOTS

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_panel_dots",
            precision=QUANTISED,
            instruction=self.element,
            converts=True,
            scales_rows=True,
            needs_permission=True,
            sizes=Tiling.names(),
        )

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        if weight.encoding.bits == _BYTE:
            return Rejected("codes of 8 bits are bytes already")
        return refused_panels(shape) or refused_dots(weight, self.element, machine)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return tilings_of_panels(shape, machine, in_bytes=True)

    def parts(self, product: EncodedProduct) -> KernelParts:
        rows = product.rounded_rows()
        code = BlockDots(product.nest, product.blocks, rows, product.memories, self.element, copies=True)
        return KernelParts(code, code.workspace, product.memories[0])
