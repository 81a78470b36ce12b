"""Traits of kernels that follow from how they multiply: single numbers, dot products or AMX's tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.packing import Narrow, Round, Scaled, Storage
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.traits import Sizes, Traits
from sartor.codegen.kernels.isa.amx import TileElement
from sartor.codegen.kernels.isa.half_pairs import HalfPairElement
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.isa.pairs import PAIRS
from sartor.codegen.kernels.layers.analytic_costs import DirectCost, DotCost, PairCost, TileCost
from sartor.codegen.kernels.loops.tiling import Tiling


def dot_traits(
    common: Traits, family: str, element: DotElement | None, weights: str | None = None, storage: str | None = None
) -> Traits:
    """Traits of a contraction in registers.

    Args:
        common: traits that follow from element types and layout.
        family: family of kernels that multiply single numbers.
        element: instruction that multiplies groups; None for single numbers in f32.
        weights: narrower type that filters are stored in, if single numbers in f32 are multiplied; None for f32.
        storage: element type that activations are stored in; None for their own.
    """
    common = replace(common, sizes=Tiling.names())
    if weights == QUANTISED:
        # The filters are rounded, and nothing else: images have the format that they have between layers of f32.
        common = replace(common, precision=QUANTISED, converts=True)
    if weights is not None:
        wide = replace(common, family=family, cost=DirectCost())
        return replace(wide, family=f"{family}_by_narrow", cost=DirectCost(weights), weights=weights, wide=wide)
    if element is None:
        own = replace(common, family=family, cost=DirectCost())
        if storage != QUANTISED:
            return own
        return replace(own, cost=DirectCost(prepares=True), wide=replace(own, precision=None, converts=False))
    if element == PAIRS:
        return replace(common, family=family, cost=PairCost())
    # Sums of a few products in f16 are rounded.
    rounds = isinstance(element, HalfPairElement)
    cost = PacedCost(element.group, element.dtype, element)
    return replace(common, family="dots", instruction=element, cost=cost, rounds_between=rounds)


@dataclass(frozen=True)
class PacedCost(DotCost):
    """The cost of products in register tiles at an instruction's own rate.

    Attributes:
        element: the instruction.
    """

    element: DotElement

    @property
    def prepares(self) -> bool:
        return self.element.prepares

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        return super().cycles(sizes, parameters, self.element.core(core))


def storage_of(weights: str | None, storage: str | None) -> Storage | None:
    """How filters are stored in the type ``weights``; None for f32.

    In 8 bits they are rounded, else only if activations are, which ``storage`` says.
    """
    if weights is None:
        return None
    if weights == QUANTISED:
        return Scaled()
    return Narrow(weights) if storage is None else Round(weights)


def rounding_arithmetic(weights: str | None) -> str | None:
    """The type that a kernel by filters in the type ``weights`` rounds what it multiplies to; None if it does not."""
    return weights if weights == QUANTISED else None


def tile_traits(common: Traits, element: TileElement, sizes: tuple[str, ...]) -> Traits:
    """Traits of a contraction in AMX's tiles.

    Args:
        common: traits that follow from element types and layout.
        element: instruction that multiplies tiles.
        sizes: names of the parameters.
    """
    return replace(common, family="tiles", instruction=element, cost=TileCost(element.dtype), sizes=sizes)
