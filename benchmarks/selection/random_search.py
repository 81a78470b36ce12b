"""Random search, the baseline of searches that learn (QS-DNN, section VI-B)."""

from __future__ import annotations

import math
from random import Random

from sartor.tuning.selection.heuristics.episodes import EPISODES, SEED, Episodes, Search
from sartor.tuning.selection.problem.indexed import index_problem
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection

NAME = "random_search"


def select(problem: Problem) -> Selection:
    """The best of ``EPISODES`` random plans.

    Raises:
        InfeasibleError: if no plan exists.
    """
    return search(problem, EPISODES).selection


def search(problem: Problem, episodes: int = EPISODES, seed: int = SEED) -> Search:
    """Try random plans, layer by layer; options that can be combined with the layers before are equally likely.

    Childnets are solved first, each by a separate search.

    Raises:
        InfeasibleError: if no plan exists.
    """
    model = index_problem(problem, lambda childnet: [search(childnet, episodes, seed).selection])
    table, rng = Episodes(model), Random(seed)
    for _ in range(episodes):
        table.record(*_episode(table, rng))
    return table.finish(NAME)


def _episode(table: Episodes, rng: Random) -> tuple[list[int], float]:
    """A random plan and its value."""
    picks: list[int] = []
    total = 0.0
    for layer in range(len(table.model.layers)):
        options = table.options(layer, picks)
        if not options:
            return picks, math.inf
        option = rng.choice(options)
        total += table.cost(layer, option, picks)
        picks.append(option)
    return picks, total
