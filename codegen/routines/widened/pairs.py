"""Convolutions and matrix products in 8 bits by pairs of 16-bit numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.analysis.matmul import MatmulShape, is_by_weight
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Parameters, Rejected, Routine
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.isa.word_pairs import WIDE_WORD_PAIRS, WORD_PAIRS, WordPairElement
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ConvolutionRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.layers.product_routine import ProductRoutine
from sartor.codegen.kernels.widened.convolution import convolution_strips, convolution_work
from sartor.codegen.kernels.widened.product import product_strips, product_work
from sartor.codegen.kernels.widened.tilings import StripCost, StripTiling, strip_tilings
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.routines.storing.integers import IntegerFactor


def _traits(common: Traits, element: WordPairElement) -> Traits:
    cost = StripCost(element.group, element.dtype, element)
    return replace(common, family="word_pairs", instruction=element, cost=cost, sizes=StripTiling.names())


@dataclass(frozen=True)
class WordPairConvolution(ConvolutionRoutine):
    """Convolution in strips, with padding left out and elementwise ops fused.

    Parameters: those of ``StripTiling``.

    Attributes:
        element: the instruction, and how filters are stored.
    """

    storage: str | None = QUANTISED
    element: WordPairElement = WORD_PAIRS

    @property
    def traits(self) -> Traits:
        return _traits(super().traits, self.element)

    def tilings(self, match: Convolution, machine: Machine) -> Sequence[StripTiling] | Rejected:
        refusal = self.element.refusal(machine)
        return refusal or strip_tilings(convolution_work(match), self.element, machine)

    def parts(self, images: ImageLayer, match: Convolution, parameters: Parameters) -> KernelParts:
        code = convolution_strips(images, match, StripTiling.of(parameters), self.element)
        return KernelParts(code, code.workspace, factor=code.source)


@dataclass(frozen=True)
class WordPairProduct(ProductRoutine):
    """Matrix product by a weight in strips of rows, with elementwise ops fused.

    Parameters: those of ``StripTiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        element: the instruction, and how filters are stored.
    """

    storage: str | None = QUANTISED
    element: WordPairElement = WORD_PAIRS

    @property
    def traits(self) -> Traits:
        return _traits(super().traits, self.element)

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> Sequence[StripTiling] | Rejected:
        if not is_by_weight(task):
            return Rejected("the RHS is not a weight, or there are several products")
        refusal = self.element.refusal(machine)
        return refusal or strip_tilings(product_work(shape), self.element, machine)

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        code = product_strips(product, StripTiling.of(parameters), self.element)
        return KernelParts(code, code.workspace, factor=code.source)


_NARROW, _WIDE = "word_pairs", "wide_word_pairs"
WORD_PAIR_ROUTINES: tuple[Routine, ...] = (
    WordPairConvolution(_WIDE, element=WIDE_WORD_PAIRS),
    WordPairConvolution(_NARROW),
    WordPairProduct(_WIDE, element=WIDE_WORD_PAIRS),
    WordPairProduct(_NARROW),
    WordPairProduct(f"{_NARROW}_to_f32", output="f32"),
    IntegerFactor(WordPairProduct(_NARROW), calibrated=True),
    IntegerFactor(WordPairConvolution(_NARROW)),
    IntegerFactor(WordPairProduct(_NARROW)),
)
"""All of them; those for models that find ranges at run time come last."""
