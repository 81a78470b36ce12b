"""Counts the layers of a plan by routine, and finds how much of its time stock code takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.variants.descriptor import algorithm_of, without_parameters
from sartor.codegen.routine_registry import all_routines
from sartor.tuning.records.plan import Plan

# From this share of the time on, stock code is worth a line of the summary.
_MUCH = 0.2
_MOST_NAMED = 3


@dataclass(frozen=True)
class StockTime:
    """The layers of a plan that IREE's stock lowering computes.

    Attributes:
        share: their share of the layers' time, in place where that was measured.
        layers: their names, the longest time first.
    """

    share: float
    layers: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What a user should know; empty if the share is small."""
        if self.share <= _MUCH:
            return ""
        return f"{self.share:.0%} of the time: {some_of(self.layers)}"


def routine_counts(plan: Plan) -> dict[str, int]:
    """Number of layers by routine, the most frequent first."""
    return dict(Counter(without_parameters(layer.variant) for layer in plan.layers).most_common())


def rounded_rows(plan: Plan) -> tuple[str, ...]:
    """Names of the layers whose kernels round the rows that they multiply to 8 bits."""
    rounding = {routine.name for routine in all_routines() if routine.traits.scales_rows}
    return tuple(layer.layer for layer in plan.layers if algorithm_of(layer.variant).rpartition(".")[2] in rounding)


def some_of(names: Sequence[str]) -> str:
    """The first of several names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join([*names[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def stock_time(plan: Plan) -> StockTime:
    """How much of a plan's time its layers in stock code take; nothing for a model that is compiled whole."""
    times = {layer.layer: layer.seconds if layer.in_place is None else layer.in_place for layer in plan.layers}
    known = {layer: seconds for layer, seconds in times.items() if seconds}
    routines = {layer.layer: algorithm_of(layer.variant).rpartition(".")[2] for layer in plan.layers}
    stock = [layer for layer in known if routines[layer] == all_routines()[0].name]
    total = sum(known.values())
    share = sum(known[layer] for layer in stock) / total if total else 0.0
    return StockTime(share, tuple(sorted(stock, key=lambda layer: -known[layer])))
