"""What documents show of the comparisons' rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from statistics import fmean
from typing import Any

from benchmarks.record.computed import Cell
from benchmarks.selection.learning import Progress
from benchmarks.selection.qsdnn.comparison import Compared
from benchmarks.selection.sampling import Quality
from benchmarks.selection.settings import KNOWN, UNKNOWN, Replay, summaries
from benchmarks.selection.sharing import Shared
from benchmarks.selection.solvers import ALONE, Solved
from benchmarks.selection.transfer import Transfer

Summary = Callable[[Sequence[Any]], tuple[Sequence[str], Iterable[Sequence[Cell]]]]
"""Gives headings and rows."""

_CLOSE = 1.02
_PERCENT = 100.0


def plain(rows: Sequence[Any]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """All fields of all rows."""
    names = [field.name for field in fields(rows[0])]
    return [name.replace("_", " ") for name in names], [[getattr(row, name) for name in names] for row in rows]


def solver_summary(rows: Sequence[Solved]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each network: losses against the proven optimum, and seconds."""
    columns = ("network", "layers", r"\|C\|", "optimum, ms", "alone, %", "greedy, %", "PBQP, %", "auto, s", "HiGHS, s")
    found: dict[str, dict[str, Solved]] = {}
    for row in rows:
        found.setdefault(row.network, {})[row.solver] = row
    return columns, [_solved(by) for by in found.values()]


def _solved(by: dict[str, Solved]) -> list[Cell]:
    auto = by["auto"]
    losses = [round(_PERCENT * (by[name].ratio - 1), 3) if name in by else None for name in (ALONE, "greedy", "pbqp")]
    return [auto.network, auto.layers, auto.width, auto.milliseconds, *losses, auto.seconds, by["ilp"].seconds]


def learning_summary(rows: Sequence[Progress]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each network and search: mean and standard deviation of the ratio to the optimum by the budget."""
    budgets = sorted({each.episodes for each in rows})
    found: dict[tuple[str, str], dict[int, Progress]] = {}
    for row in rows:
        found.setdefault((row.network, row.search), {})[row.episodes] = row
    shown: list[list[Cell]] = [
        [*key, *(f"{by[budget].ratio:.2f} ± {by[budget].spread:.2f}" for budget in budgets), by[budgets[-1]].seconds]
        for key, by in sorted(found.items())
    ]
    return ("network", "search", *(f"{budget} episodes" for budget in budgets), "seconds"), shown


def library_summary(rows: Sequence[Compared]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each network and mode: speed-ups over candidate 0 everywhere."""
    columns = ("network", "mode", "base, ms", "best primitive", "x", "best library", "x", "random, x", "Q-learning, x")
    return (*columns, "optimum, x", "layers on the GPU"), [
        [
            *(row.network, row.mode, row.base, row.primitive, row.by_primitive, row.library, row.by_library),
            *(row.random, row.qlearning, row.optimum, f"{row.on_gpu} of {row.layers}"),
        ]
        for row in rows
    ]


def sharing_summary(rows: Sequence[Shared]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each network: milliseconds of the plans by both ways of charging."""
    columns = ("network", "layers", "values that can share", "every edge charged, ms", "the same plan as built")
    return (*columns, "charged once, ms", "gain, %", "changed"), [
        [
            *(row.network, row.layers, row.shared, row.per_edge, row.per_edge_built, row.per_value),
            *(round(row.gain, 3), row.changed),
        ]
        for row in rows
    ]


def sampling_summary(rows: Sequence[Quality]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each method and round: the mean over networks, the worst, and how many are within 2%."""
    found: dict[str, dict[str, list[Quality]]] = {}
    for row in rows:
        found.setdefault(row.method, {}).setdefault(row.network, []).append(row)
    columns = ("method", "round", "measured, %", "above the best, %", "worst network, %", "networks within 2%", "of")
    return columns, [line for method, by in found.items() for line in _rounds(method, list(by.values()))]


def _rounds(method: str, networks: Sequence[Sequence[Quality]]) -> Iterator[list[Cell]]:
    """A network whose search has ended keeps its last round.

    The tuner's first round is 0. Of other methods round 0 is candidate 0 alone, and the last one is all there is.
    """
    longest = max(map(len, networks))
    for number in range(longest) if method.startswith("tuner") else range(1, longest - 1):
        now = [network[min(number, len(network) - 1)] for network in networks]
        losses = [_PERCENT * (each.ratio - 1) for each in now]
        yield [
            *(method, number, _PERCENT * fmean(each.fraction for each in now), fmean(losses), max(losses)),
            *(sum(each.ratio <= _CLOSE for each in now), len(now)),
        ]


def settings_summary(rows: Sequence[Replay]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each setting, with times of other families and without: variants measured, mean and largest loss."""
    columns = ("other families", "limits", "measured, %", "mean loss, %", "most, %")
    return columns, [
        (knows, setting, round(share, 1), round(loss, 2), round(most, 2))
        for knows in (KNOWN, UNKNOWN)
        for setting, share, loss, most in summaries(rows, knows)
    ]


def transfer_summary(rows: Sequence[Transfer]) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
    """A row for each network: variants that a search measures, and what its plan loses against the best of all."""
    columns = ("network", "variants", "without them", "loss, %", "others known", "loss, %", "other families known")
    shown: list[list[Cell]] = [
        [
            *(row.network, row.variants, row.cold, round(row.cold_loss, 2), row.informed),
            *(round(row.informed_loss, 2), row.apart, round(row.apart_loss, 2)),
        ]
        for row in rows
    ]
    counts: list[Cell] = [sum(row.variants for row in rows)]
    for measured, loss in (("cold", "cold_loss"), ("informed", "informed_loss"), ("apart", "apart_loss")):
        counts += [sum(getattr(row, measured) for row in rows), round(fmean(getattr(row, loss) for row in rows), 2)]
    return (*columns, "loss, %"), [*shown, ["all, mean loss", *counts]]
