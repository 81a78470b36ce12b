"""Shared by searches that try one plan per episode: the table of costs, and the record of plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter

import numpy as np

from sartor.tuning.selection.heuristics.greedy import everything, greedy_picks, independent_bound, supported
from sartor.tuning.selection.problem.indexed import IndexedProblem, Link
from sartor.tuning.selection.problem.selection import Selection, conclude

EPISODES = 1000
"""The number of QS-DNN (section VI-B)."""
SEED = 0


@dataclass(frozen=True, eq=False)
class Search:
    """A finished search.

    Attributes:
        selection: the best plan of all episodes; among equals the first in choice order.
        values: cost of each episode's plan; infinite for a dead end.
    """

    selection: Selection
    values: tuple[float, ...]

    @property
    def curve(self) -> tuple[float, ...]:
        """The cost of the best plan so far, after each episode."""
        return tuple(accumulate(self.values, min))


class Episodes:
    """The costs of single options, in lists for fast look-up, and the record of tried plans.

    Attributes:
        model: the problem.
        worst: upper bound of all plans' costs.
    """

    def __init__(self, model: IndexedProblem) -> None:
        """Build the table.

        Raises:
            InfeasibleError: if a layer has no option that its neighbours' options can be combined with.
        """
        self.model = model
        self.worst = float(sum(layer.values.max() for layer in model.layers)) + sum(map(_dearest, model.links))
        self._started = perf_counter()
        self._allowed = supported(model, everything(model))
        self._options: list[list[int]] = [np.flatnonzero(mask).tolist() for mask in self._allowed]
        self._costs: list[list[float]] = [layer.values.tolist() for layer in model.layers]
        self._outputs: list[list[int]] = [layer.output_of.tolist() for layer in model.layers]
        self._adapts = [[_Adapts(model, link) for link in links] for links in model.inbound]
        self._partial = [any(bool(np.isinf(link.costs).any()) for link in links) for links in model.inbound]
        self._values: list[float] = []
        self._best: tuple[float, list[int]] | None = None

    def options(self, layer: int, picks: Sequence[int]) -> list[int]:
        """The options of a layer that can be combined with the options picked before it."""
        options = self._options[layer]
        if self._partial[layer]:
            return [option for option in options if math.isfinite(self.cost(layer, option, picks))]
        return options

    def cost(self, layer: int, option: int, picks: Sequence[int]) -> float:
        """The cost of an option with its adapts from the options picked before it."""
        total = self._costs[layer][option]
        for adapts in self._adapts[layer]:
            own = adapts.costs[self._outputs[adapts.producer][picks[adapts.producer]]][option]
            if not adapts.sharing or math.isinf(own) or not adapts.paid(option, picks):
                total += own
        return total

    def record(self, picks: Sequence[int], value: float) -> None:
        """Record an episode's plan; that of a dead end has an infinite value."""
        self._values.append(value)
        if math.isfinite(value) and (self._best is None or (value, picks) < self._best):
            self._best = value, list(picks)

    def finish(self, solver: str) -> Search:
        """The finished search with the best plan; the greedy plan if all episodes ended in dead ends.

        Raises:
            InfeasibleError: if no plan exists.
        """
        picks = self._best[1] if self._best else greedy_picks(self.model, self._allowed)
        bound = independent_bound(self.model) - self.model.slack
        seconds = perf_counter() - self._started
        plan = self.model.assignment(picks)
        selection = conclude(self.model.problem, plan, bound=bound, solver=solver, seconds=seconds)
        return Search(selection, tuple(self._values))


class _Adapts:
    """The costs of the adapts on a link, in lists for fast look-up."""

    def __init__(self, model: IndexedProblem, link: Link) -> None:
        self.producer = link.producer
        self.costs: list[list[float]] = link.costs.tolist()
        self._needed: list[int] = link.needed.tolist()
        self.sharing = [
            (None if other.consumer == link.consumer else other.consumer, other.needed.tolist())
            for other in model.sharing(link)
        ]

    def paid(self, option: int, picks: Sequence[int]) -> bool:
        """Whether an earlier reader of the value needs the same conversion as an option."""
        needed = self._needed[option]
        return any(other[option if consumer is None else picks[consumer]] == needed for consumer, other in self.sharing)


def _dearest(link: Link) -> float:
    return float(np.max(link.costs, where=np.isfinite(link.costs), initial=0.0))
