"""How variants round: the type of a layer's activations and results, and whether its filters are rounded as well."""

from __future__ import annotations

from sartor.codegen.ir.packing import Quantise
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Variant

STORED = "i8-stored"
"""Activations and results are stored in 8 bits, filters are not quantised."""


def rounding_of(variant: Variant) -> str:
    """The rounding to simulate for a variant: its type, or ``STORED`` if that is 8 bits and its filters are not
    quantised.

    Winograd's method in 8 bits rounds transformed filters, to 8 bits or to bf16. Both count as quantised filters.
    """
    if variant.dtype != QUANTISED or variant.traits.rounds_between:
        return variant.dtype
    packings = variant.implementation.packings
    rounds_filters = any(isinstance(step, Quantise) for packing in packings for step in packing.steps)
    return STORED if packings and not rounds_filters else QUANTISED
