"""Compares Q-learning with random search, as QS-DNN's figure 5 does, and with the true optimum.

Each point is a complete search with that budget of episodes, whose exploration ends in time, repeated with other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from time import process_time

from benchmarks.selection import random_search
from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.results import Axes, Line, plot_lines
from sartor.tuning.selection import auto
from sartor.tuning.selection.heuristics import qlearning
from sartor.tuning.selection.heuristics.episodes import EPISODES, Search
from sartor.tuning.selection.problem.problem import Problem

NETWORKS = ("mobilenet_v1", "squeezenet", "resnet50", "googlenet")
BUDGETS = (25, 50, 100, 200, 350, 500, 700, EPISODES)
_SEEDS = 5
_SEARCHES: dict[str, Callable[[Problem, int, int], Search]] = {
    qlearning.NAME: qlearning.search,
    random_search.NAME: random_search.search,
}


@dataclass(frozen=True)
class Progress:
    """Complete searches of one budget.

    Attributes:
        network: name.
        search: name of the search.
        episodes: the budget, in tried plans.
        ratio: cost of the best plan divided by the optimum, the mean over seeds.
        spread: standard deviation of the ratios.
        least: the lowest ratio of a seed.
        most: the highest ratio of a seed.
        seconds: processor time of one search, the mean over seeds.
    """

    network: str
    search: str
    episodes: int
    ratio: float
    spread: float
    least: float
    most: float
    seconds: float


def run(tables: Sequence[NetworkTables], budgets: Sequence[int] = BUDGETS, seeds: int = _SEEDS) -> list[Progress]:
    """Run both searches on every network, with every budget."""
    return [row for table in tables for name in _SEARCHES for row in _follow(table, name, budgets, seeds)]


def plot(rows: Sequence[Progress], path: Path) -> Path:
    """Plot a panel for every network."""
    panels = {}
    for network in dict.fromkeys(row.network for row in rows):
        axes = Axes(network, "episodes", "best plan over the optimum", log_y=True)
        panels[axes] = [
            _line([row for row in rows if (row.network, row.search) == (network, name)]) for name in _SEARCHES
        ]
    return plot_lines(panels, path)


def _line(rows: Sequence[Progress]) -> Line:
    points = [(row.episodes, row.ratio) for row in rows]
    return Line(rows[0].search, points, [(row.least, row.most) for row in rows])


def _follow(tables: NetworkTables, name: str, budgets: Sequence[int], seeds: int) -> list[Progress]:
    best = auto.select(tables.problem).cost
    rows = []
    for budget in budgets:
        started = process_time()
        ratios = [_SEARCHES[name](tables.problem, budget, seed).selection.cost / best for seed in range(seeds)]
        seconds = (process_time() - started) / seeds
        described = fmean(ratios), pstdev(ratios), min(ratios), max(ratios)
        rows.append(Progress(tables.network, name, budget, *described, seconds))
    return rows
