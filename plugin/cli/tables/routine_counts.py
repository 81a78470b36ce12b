"""Counts the layers of a plan by routine."""

from __future__ import annotations

from collections import Counter

from sartor.codegen.ir.variants.descriptor import without_parameters
from sartor.tuning.records.plan import Plan


def routine_counts(plan: Plan) -> dict[str, int]:
    """Number of layers by routine, the most frequent first."""
    return dict(Counter(without_parameters(layer.variant) for layer in plan.layers).most_common())
