"""QS-DNN's table II: primitives, libraries, searches and the optimum, on the CPU and with a simulated GPU.

Speed-ups are over candidate 0 in the whole network, as the paper's are over its dependency-free implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.selection import random_search
from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.qsdnn.heterogeneous import DEVICE, with_gpu
from benchmarks.selection.qsdnn.primitives import BASE, libraries, primitives, whole_net
from benchmarks.selection.results import Axes, plot_bars
from sartor.tuning.selection import auto
from sartor.tuning.selection.heuristics import qlearning
from sartor.tuning.selection.heuristics.episodes import EPISODES
from sartor.tuning.selection.problem.problem import Problem

CPU, GPGPU = "CPU", "GPGPU"
_SEEDS = 5


@dataclass(frozen=True)
class Compared:
    """A network in one mode. All but names and ``base`` are speed-ups over ``base``.

    Attributes:
        network: name.
        mode: CPU alone, or with the simulated GPU.
        base: milliseconds of candidate 0.
        primitive: name of the best single primitive.
        by_primitive: with that primitive wherever it applies.
        library: name of the best single library.
        by_library: with that library wherever it applies.
        random: best plan of random search, the mean over seeds.
        qlearning: best plan of Q-learning, the mean over seeds.
        optimum: the proven optimum.
        on_gpu: number of layers that the optimum computes on the GPU.
        layers: number of layers.
    """

    network: str
    mode: str
    base: float
    primitive: str
    by_primitive: float
    library: str
    by_library: float
    random: float
    qlearning: float
    optimum: float
    on_gpu: int
    layers: int


@dataclass(frozen=True)
class Alone:
    """The whole network by one primitive wherever it applies.

    Attributes:
        network: name.
        primitive: name of the routine.
        layers: number of layers to which it applies.
        milliseconds: of the network, with candidate 0 elsewhere.
        faster: speed-up over candidate 0 everywhere.
    """

    network: str
    primitive: str
    layers: int
    milliseconds: float
    faster: float


def run(tables: Sequence[NetworkTables], episodes: int = EPISODES, seeds: int = _SEEDS) -> list[Compared]:
    """Compare everything on every network, in both modes."""
    return [
        _compare(table.network, mode, problem, episodes, seeds)
        for table in tables
        for mode, problem in ((CPU, table.problem), (GPGPU, with_gpu(table)))
    ]


def run_alone(tables: Sequence[NetworkTables]) -> list[Alone]:
    """Every primitive alone, on every network, on the CPU."""
    return [row for table in tables for row in _alone(table.network, table.problem)]


def plot(rows: Sequence[Compared], path: Path) -> Path:
    """Plot the speed-ups of both modes."""
    names = [f"{row.network}, {row.mode}" for row in rows]
    bars = {
        "best single library": [row.by_library for row in rows],
        "random search": [row.random for row in rows],
        "Q-learning": [row.qlearning for row in rows],
        "optimum": [row.optimum for row in rows],
    }
    return plot_bars(Axes("speed-up over candidate 0", "", "times", log_y=True), names, bars, path)


def _compare(network: str, mode: str, problem: Problem, episodes: int, seeds: int) -> Compared:
    base, best = whole_net(problem, [BASE]), auto.select(problem)
    alone = {name: whole_net(problem, [name]) for name in primitives(problem) if name != BASE} or {BASE: base}
    joined = {name: whole_net(problem, members) for name, members in libraries(problem)}
    primitive, library = min(alone, key=alone.__getitem__), min(joined, key=joined.__getitem__)
    found = {
        module.NAME: fmean(module.search(problem, episodes, seed).selection.cost for seed in range(seeds))
        for module in (qlearning, random_search)
    }
    taken = best.choices.values()
    return Compared(
        *(network, mode, base * 1e3, primitive, base / alone[primitive], library, base / joined[library]),
        random=base / found[random_search.NAME],
        qlearning=base / found[qlearning.NAME],
        optimum=base / best.cost,
        on_gpu=sum(each.output.device == DEVICE for each in taken),
        layers=len(problem.nodes),
    )


def _alone(network: str, problem: Problem) -> list[Alone]:
    base = whole_net(problem, [BASE])
    rows = []
    for name in primitives(problem):
        layers = sum(any(name in choice.name for choice in node.choices) for node in problem.nodes)
        taken = whole_net(problem, [name])
        rows.append(Alone(network, name, layers, taken * 1e3, base / taken))
    return rows
