"""Compares Q-learning with random search, as QS-DNN's figure 5 does, and with the true optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import process_time

from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.results import Axes, Line, plot_lines
from sartor.tuning.selection import auto
from sartor.tuning.selection.heuristics import qlearning, random_search
from sartor.tuning.selection.heuristics.episodes import EPISODES, Search
from sartor.tuning.selection.problem.problem import Problem

NETWORKS = ("mobilenet_v1", "squeezenet", "resnet50", "googlenet")
_SEEDS = 5
_SEARCHES: dict[str, Callable[[Problem, int, int], Search]] = {
    qlearning.NAME: qlearning.search,
    random_search.NAME: random_search.search,
}


@dataclass(frozen=True)
class Progress:
    """The state of a search after some episodes.

    Attributes:
        network: name.
        search: name of the search.
        episodes: number of tried plans.
        ratio: cost of the best plan divided by the optimum, the mean over seeds.
        least: the lowest ratio of a seed.
        most: the highest ratio of a seed.
        seconds: processor time of one whole search, the mean over seeds.
    """

    network: str
    search: str
    episodes: int
    ratio: float
    least: float
    most: float
    seconds: float


def run(tables: Sequence[NetworkTables], episodes: int = EPISODES, seeds: int = _SEEDS) -> list[Progress]:
    """Run both searches on every network."""
    return [row for each in tables for name in _SEARCHES for row in _follow(each, name, episodes, seeds)]


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


def _follow(tables: NetworkTables, name: str, episodes: int, seeds: int) -> list[Progress]:
    best = auto.select(tables.problem).cost
    started = process_time()
    curves = [_SEARCHES[name](tables.problem, episodes, seed).curve for seed in range(seeds)]
    seconds = (process_time() - started) / seeds
    rows = []
    for count in _checkpoints(episodes):
        ratios = [curve[count - 1] / best for curve in curves]
        rows.append(Progress(tables.network, name, count, fmean(ratios), min(ratios), max(ratios), seconds))
    return rows


def _checkpoints(episodes: int) -> list[int]:
    """1, 3, 10, 30 and so on, and every twentieth of all episodes, where Q-learning's epsilon changes."""
    steps = {round(10 ** (power / 2)) for power in range(20)} | {episodes * part // 20 for part in range(1, 21)}
    return sorted(step for step in steps if 1 <= step <= episodes)
