"""The best guesses of the analytic model, which needs no measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.search.features import analytic_cycles

# A variant that the analytic model predicts to be slower by this factor is not tried.
_FAR_SLOWER = 2.0


def groups(
    variants: Sequence[DescribedVariant], key: Callable[[DescribedVariant], object]
) -> list[list[DescribedVariant]]:
    """Group variants with equal keys; groups are in the order of their first variants."""
    grouped: dict[object, list[DescribedVariant]] = {}
    for variant in variants:
        grouped.setdefault(key(variant), []).append(variant)
    return list(grouped.values())


def leaders(facts: str, variants: Sequence[DescribedVariant], core: Core = WIDE) -> Iterator[DescribedVariant]:
    """The best variant of each routine by the analytic model, on a core as for ``features``.

    Variants that are predicted to be far slower than the best exact variant are left out.
    """
    cycles = {variant.descriptor: analytic_cycles(facts, variant, core) or 0.0 for variant in variants}
    of_routines = groups(variants, lambda variant: variant.routine)
    fastest = [min(listed, key=lambda variant: cycles[variant.descriptor]) for listed in of_routines]
    exact = [cycles[variant.descriptor] for variant in fastest if not variant.traits.rounds_between]
    least = min(filter(None, exact), default=math.inf)
    return (variant for variant in fastest if cycles[variant.descriptor] <= _FAR_SLOWER * least)
