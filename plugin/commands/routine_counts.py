"""How many layers of a plan each routine computes."""

from __future__ import annotations

from collections import Counter

from sartor.tuning.plan import Plan


def routine_of(variant: str) -> str:
    """A variant's descriptor without its parameters."""
    return variant.partition("{")[0]


def routine_counts(plan: Plan) -> dict[str, int]:
    """Layers by routine, the most frequent first."""
    return dict(Counter(routine_of(layer.variant) for layer in plan.layers).most_common())
