"""Matrix products by weights of floats that are rounded to blocks of 4 bits when they are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape, is_by_weight
from sartor.codegen.ir.block_packing import BITS, FOUR_BITS, USUAL_BLOCK
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction
from sartor.codegen.kernels.encoded.block_dots import BlockDots
from sartor.codegen.kernels.encoded.block_routine import EncodedProduct, refused_dots
from sartor.codegen.kernels.encoded.block_tilings import (
    refused_panels,
    refused_words,
    tilings_of_codes,
    tilings_of_panels,
    tilings_of_words,
)
from sartor.codegen.kernels.encoded.decoded_panels import DecodedPanels
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.isa.word_sums import WORD_DOTS
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.layers.product_routine import ProductRoutine
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class NarrowedProduct(ProductRoutine):
    """Multiplies f32 by a weight whose columns are rounded to blocks of 4 bits.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        decodes: whether panels are decoded once for all rows, rather than codes in registers.
        block: rows of a block.
    """

    name: str = "product_by_i4"
    decodes: bool = False
    block: int = USUAL_BLOCK

    @property
    def arithmetic(self) -> str | None:
        """The type that weights are rounded to, while values keep theirs in memory."""
        return FOUR_BITS[self.block]

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_panels" if self.decodes else "block_product",
            precision=FOUR_BITS[self.block],
            weights=FOUR_BITS[self.block],
            converts=True,
            sizes=Tiling.names(),
        )

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> Sequence[Tiling] | Rejected:
        if not is_by_weight(task):
            return Rejected("the RHS is not a weight, or there are several products")
        if shape.depth < self.block:
            return Rejected(f"the weight has fewer rows than a block of {self.block}")
        if not self.decodes:
            return tilings_of_codes(shape, machine)
        return refused_panels(shape) or tilings_of_panels(shape, machine)

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        of = EncodedProduct.rounding(product, BITS, self.block, Tiling.of(parameters))
        if not self.decodes:
            return KernelParts(BlockContraction(of.nest, of.blocks, of.image, of.memories), factor=of.memories[0])
        code = DecodedPanels(of.nest, of.blocks, of.image, of.memories)
        return KernelParts(code, code.workspace, of.memories[0])


@dataclass(frozen=True)
class NarrowedWordProduct(NarrowedProduct):
    """Rounds rows to 16 bits, block by block, and multiplies them by a weight that is rounded to blocks of 4 bits.

    Where the numbers of a block are alike, rows' errors are a few thousandths of what the weight's rounding makes.

    Attributes:
        element: instruction that multiplies pairs of integers.
    """

    name: str = "words_by_i4"
    element: DotElement = WORD_DOTS

    @property
    def traits(self) -> Traits:
        return replace(super().traits, family="block_words", instruction=self.element)

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> Sequence[Tiling] | Rejected:
        offered = super().tilings(task, shape, machine)
        if isinstance(offered, Rejected):
            return offered
        of = BlockEncoding(BITS, self.block, shape.depth, shape.columns)
        refusal = refused_words(shape) or refused_dots(of, self.element, machine)
        return refusal or tilings_of_words(shape, machine)

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        of = EncodedProduct.rounding(product, BITS, self.block, Tiling.of(parameters))
        code = BlockDots(of.nest, of.blocks, of.rounded_rows(self.element), of.memories, self.element)
        return KernelParts(code, code.workspace, of.memories[0])
