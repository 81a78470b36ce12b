"""Measures the growth of the solvers' time with layers, candidates and the width of branches, on synthetic nets."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from benchmarks.selection.results import Axes, Line, plot_lines
from benchmarks.selection.synthetic import CELLS, Shape, synthetic
from sartor.tuning.selection import auto
from sartor.tuning.selection.heuristics import greedy, pbqp
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection
from sartor.tuning.selection.programming import ilp

_LAYERS = (10, 30, 100, 300, 1000, 3000, 10_000)
_CANDIDATES = (2, 4, 9, 16, 25, 36, 49, 64)
_WIDTHS = (2, 4, 8, 16, 32, 64)
_CELLS = ("residual", "inception", "dense")
_FIXED_LAYERS = 300
_ILP_LAYERS = 300
_ILP_SECONDS = 20.0
_MANY = 16


@dataclass(frozen=True)
class Grown:
    """One solver on one synthetic net.

    Attributes:
        sweep: the quantity that grows in this series.
        cell: kind of the net's cells.
        layers: number of layers.
        candidates: number of candidates of a layer.
        width: of a cell.
        solver: name of the solver.
        by: name of the solver that found the plan, if it is another.
        seconds: processor time, which excludes other programs.
        ratio: cost divided by the highest lower bound of all solvers.
        proven: whether it proved its plan optimal.
    """

    sweep: str
    cell: str
    layers: int
    candidates: int
    width: int
    solver: str
    by: str
    seconds: float
    ratio: float
    proven: bool


def run(most_layers: int = _LAYERS[-1], most: int = _CANDIDATES[-1]) -> list[Grown]:
    """Run all series, up to ``most_layers`` layers and ``most`` candidates and branches."""
    return [row for sweep, shape in _shapes(most_layers, most) for row in _solve(sweep, shape)]


def plot(rows: Sequence[Grown], path: Path) -> Path:
    """Plot a panel for every series."""
    panels = {}
    for sweep in dict.fromkeys(row.sweep for row in rows):
        axes = Axes(f"seconds by {sweep}", sweep, "seconds", log_x=True, log_y=True)
        shown = [row for row in rows if row.sweep == sweep]
        series = dict.fromkeys((row.cell, row.solver) for row in shown if row.solver in (auto.NAME, ilp.NAME))
        panels[axes] = [_line(shown, sweep, cell, solver) for cell, solver in series]
    return plot_lines(panels, path)


def _line(rows: Sequence[Grown], sweep: str, cell: str, solver: str) -> Line:
    picked = [row for row in rows if (row.cell, row.solver) == (cell, solver)]
    return Line(f"{cell}, {solver}", [(getattr(row, sweep), row.seconds) for row in picked])


def _shapes(most_layers: int, most: int) -> Iterator[tuple[str, Shape]]:
    for cell in CELLS:
        for layers in _LAYERS:
            if layers <= most_layers:
                yield "layers", Shape(cell, layers, min(_MANY, most))
    fixed = min(_FIXED_LAYERS, most_layers)
    for cell in _CELLS:
        for candidates in _CANDIDATES:
            if candidates <= most:
                yield "candidates", Shape(cell, fixed, candidates)
    for cell in _CELLS[1:]:
        for width in _WIDTHS:
            if width <= most:
                yield "width", Shape(cell, fixed, min(9, most), width)


def _solve(sweep: str, shape: Shape) -> list[Grown]:
    problem = synthetic(shape)
    found: list[tuple[str, Selection, float]] = []
    for name in (greedy.NAME, pbqp.NAME, auto.NAME, ilp.NAME):
        if name != ilp.NAME or shape.layers <= _ILP_LAYERS:
            gc.collect()
            started = process_time()
            selection = _ask(name, problem)
            found.append((name, selection, process_time() - started))
    bound = max(selection.lower_bound for _, selection, _ in found)
    return [
        Grown(
            sweep,
            shape.cell,
            len(problem.nodes),
            shape.candidates,
            shape.width,
            name,
            selection.solver,
            seconds,
            selection.cost / bound,
            selection.optimal,
        )
        for name, selection, seconds in found
    ]


def _ask(name: str, problem: Problem) -> Selection:
    if name == ilp.NAME:
        return ilp.k_best(problem, 1, seconds=_ILP_SECONDS)[0]
    return {greedy.NAME: greedy.select, pbqp.NAME: pbqp.select, auto.NAME: auto.select}[name](problem)
