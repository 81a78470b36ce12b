"""What variants round: the types of what a layer reads and writes, and whether its filters are rounded with them."""

from __future__ import annotations

from sartor.codegen.ir.packing import Quantise
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Variant

STORED = "i8-stored"
"""8 bits in memory only: filters stay what they are."""


def rounding_of(variant: Variant) -> str:
    """What is simulated for a variant: its type, or ``STORED`` if that is 8 bits and its filters are not.

    What Winograd's method makes of filters is rounded, to 8 bits or not, and counts as if it were to 8 bits.
    """
    if variant.dtype != QUANTISED or variant.traits.rounds_between:
        return variant.dtype
    packings = variant.implementation.packings
    rounds_filters = any(isinstance(step, Quantise) for packing in packings for step in packing.steps)
    return STORED if packings and not rounds_filters else QUANTISED
