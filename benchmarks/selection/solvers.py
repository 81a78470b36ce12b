"""Compares greedy selection, dynamic programming, PBQP and the global optimum, as SoftNeuro and NeoCPU do.

SoftNeuro (section IV) claims that DPRS is better than the fastest variant of each layer alone, and than greedy
selection. NeoCPU (section 3.3.2) claims that PBQP reaches at least 88% of dynamic programming. The optimum here is
proven by HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.results import Axes, plot_bars
from sartor.tuning.cost_tables.fused_choices import is_inside
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import greedy, pbqp
from sartor.tuning.selection.problem.problem import Choice, Problem
from sartor.tuning.selection.problem.selection import Assignment, Selector, evaluate
from sartor.tuning.selection.programming import ilp

SOLVERS: dict[str, Selector] = {each.NAME: each.select for each in (greedy, pbqp, dprs, ilp, auto)}
ALONE = "fastest alone"
DEFAULT = "candidate 0"
_REPEATS = 3


@dataclass(frozen=True)
class Solved:
    """One solver on one network.

    Attributes:
        network: name.
        layers: number of the problem's layers, including inputs and outputs of the network.
        width: largest number of branching layers that constrain one table of DPRS.
        solver: name of the solver or rule.
        milliseconds: cost of its plan.
        ratio: cost of its plan divided by the optimum.
        seconds: least processor time of several runs, None for a rule.
        proven: whether it proved its plan optimal.
    """

    network: str
    layers: int
    width: int
    solver: str
    milliseconds: float
    ratio: float
    seconds: float | None
    proven: bool


def run(tables: Sequence[NetworkTables], repeats: int = _REPEATS) -> list[Solved]:
    """Run every solver, and two rules, on every network."""
    return [row for table in tables for row in _compare(table, repeats)]


def plot(rows: Sequence[Solved], path: Path) -> Path:
    """Plot the costs of each solver's plans relative to the optimum."""
    networks = list(dict.fromkeys(row.network for row in rows))
    bars = {
        solver: [max(row.ratio - 1, 0.0) * 100 for row in rows if row.solver == solver]
        for solver in (ALONE, greedy.NAME, pbqp.NAME, dprs.NAME)
    }
    return plot_bars(Axes("plans against the global optimum", "", "% above the optimum"), networks, bars, path)


def _compare(tables: NetworkTables, repeats: int) -> list[Solved]:
    problem = tables.problem
    best = ilp.select(problem).cost
    width = dprs.width(problem)

    def row(solver: str, seconds_of_plan: float, seconds: float | None, proven: bool) -> Solved:
        ratio = seconds_of_plan / best
        layers = len(problem.nodes)
        return Solved(tables.network, layers, width, solver, seconds_of_plan * 1e3, ratio, seconds, proven)

    rows = [row(name, cost, None, False) for name, cost in _rules(problem).items()]
    for name, select in SOLVERS.items():
        times = []
        for _ in range(repeats):
            started = process_time()
            found = select(problem)
            times.append(process_time() - started)
        rows.append(row(name, found.cost, min(times), found.optimal))
    return rows


def _rules(problem: Problem) -> dict[str, float]:
    """Costs of the plans of candidate 0, and of the fastest variants alone, with the conversions that they need.

    A kernel of two layers is the variant of neither alone.
    """
    first = Assignment({node.name: node.choices[0] for node in problem.nodes})
    alone = {
        node.name: min(filter(_is_of_one_layer, node.choices), key=lambda choice: choice.cost.latency)
        for node in problem.nodes
    }
    costs = {DEFAULT: evaluate(problem, first), ALONE: evaluate(problem, Assignment(alone))}
    return {name: cost.latency for name, cost in costs.items() if cost is not None}


def _is_of_one_layer(choice: Choice) -> bool:
    return not any(map(is_inside, (*choice.inputs, choice.output)))
