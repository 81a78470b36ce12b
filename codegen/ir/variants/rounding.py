"""How variants round: the type of a layer's activations and results, and whether its filters are rounded as well."""

from __future__ import annotations

from sartor.codegen.ir.packing import Quantise
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Variant

STORED = "i8-stored"
"""Activations and results are stored in 8 bits, filters are not quantised."""
ROWS = "i8-rows"
"""The operand that is multiplied by filters is rounded to 8 bits, each row by its own range, and so are the filters."""
FACTOR = "i8-factor"
"""The operand that is multiplied by filters is read in 8 bits and filters are quantised; others and results are not."""
WEIGHTS = "i8-weights"
"""Only filters are quantised; all else keeps its type."""
LEVELS, MOST_LEVELS = 255.0, 8000.0
"""Steps of a row's range, and the most that there are between its least and its greatest number."""
LEAST_STEP = 1e-33
"""The least step, whose reciprocal is finite."""
REACH = 9.0
"""Numbers of a row are outliers, with 16 bits, beyond this multiple of the mean size of those that are none."""


def rounding_of(variant: Variant) -> str:
    """The rounding to simulate for a variant: its type, or in 8 bits ``ROWS`` if it finds the ranges of rows,
    ``FACTOR`` if it reads only what it multiplies in 8 bits, ``WEIGHTS`` if it reads only filters so, and ``STORED`` if
    its filters are not quantised.

    Winograd's method in 8 bits rounds transformed filters, to 8 bits or to bf16. Both count as quantised filters.
    """
    if variant.dtype != QUANTISED or variant.traits.rounds_between:
        return variant.dtype
    if variant.traits.scales_rows:
        return ROWS
    if variant.traits.rounds_factor:
        return FACTOR
    if variant.traits.weights == QUANTISED:
        return WEIGHTS
    packings = variant.implementation.packings
    rounds_filters = any(isinstance(step, Quantise) for packing in packings for step in packing.steps)
    return STORED if packings and not rounds_filters else QUANTISED
