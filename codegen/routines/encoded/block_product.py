"""Matrix products by weights in blocks of small integers, whose codes are decoded in registers."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction
from sartor.codegen.kernels.encoded.block_costs import DecodedCost, RoundedCost
from sartor.codegen.kernels.encoded.block_dots import BlockDots
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine, EncodedProduct, bytes_of, refused_dots
from sartor.codegen.kernels.encoded.block_tilings import (
    refused_words,
    tilings_of_codes,
    tilings_of_dots,
    tilings_of_words,
)
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight
from sartor.codegen.kernels.encoded.present_parts import PartContraction
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.isa.word_sums import WORD_DOTS
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.kernel_machine import ALSO_CUDA
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class BlockProduct(BlockRoutine):
    """Multiplies f32 by codes, which are decoded in registers."""

    name: str = "block_product"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_product", sizes=Tiling.names(), reads_codes=True, cost=DecodedCost())

    @property
    def devices(self) -> tuple[str, ...]:
        return ALSO_CUDA

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return None

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return tilings_of_codes(shape, machine)

    def parts(self, product: EncodedProduct) -> KernelParts:
        shared = product.nest, product.blocks, product.image, product.memories
        # Parts are looked at by whole vectors, which would read behind the last row.
        length = product.blocks.encoding.depth // product.one_of
        if product.one_of == 1 or length % product.blocks.lanes:
            return KernelParts(BlockContraction(*shared))
        code = PartContraction(*shared, product.one_of, product.columns)
        return KernelParts(code, code.workspace)


@dataclass(frozen=True)
class BlockDotProduct(BlockRoutine):
    """Rounds rows to 8 bits, block by block, and multiplies them by codes.

    Every workgroup rounds the rows that it reads, so if one thread runs all, one workgroup is tried first. With more
    threads workgroups that partition the rows are tried, too.

    Attributes:
        storage: the type that the kernel computes in; activations and the result have the model's.
        element: instruction that multiplies groups of integers without a sign by signed ones.
    """

    name: str = "block_dots"
    storage: str | None = QUANTISED
    element: DotElement = INTEGER_DOTS

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_dots",
            precision=QUANTISED,
            instruction=self.element,
            converts=True,
            scales_rows=True,
            needs_permission=True,
            sizes=Tiling.names(),
            reads_codes=True,
            cost=self.cost,
        )

    @property
    def cost(self) -> RoundedCost:
        """What it takes to round rows and to multiply them."""
        return RoundedCost(self.element, bytes_of(self.element))

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return refused_dots(weight.encoding, self.element, machine)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return tilings_of_dots(shape, machine)

    def parts(self, product: EncodedProduct) -> KernelParts:
        rows = product.rounded_rows(self.element)
        code = BlockDots(product.nest, product.blocks, rows, product.memories, self.element)
        return KernelParts(code, code.workspace, product.memories[0])


@dataclass(frozen=True)
class BlockWordProduct(BlockDotProduct):
    """Rounds rows to 16 bits, block by block, and multiplies them by codes.

    Results differ from sums in f32 by some 2e-5 of the largest where the numbers of a block are alike. One number that
    is 1,000 times as large takes ten bits from the others of its block, and errors reach 3e-3.
    """

    name: str = "block_words"
    storage: str | None = None
    element: DotElement = WORD_DOTS

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_words",
            instruction=self.element,
            transforms=True,
            needs_permission=True,
            sizes=Tiling.names(),
            reads_codes=True,
            cost=self.cost,
        )

    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        return refused_words(shape) or super().refusal(weight, shape, machine)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        return tilings_of_words(shape, machine)
