"""How much the limits of the tuner's search matter, and what they would lose if they were chosen on other networks.

Searches of all networks are replayed with one limit changed at a time: with times of other families of networks, as a
first tune on a known kind of machine, and without any. For each family the limits that lose least on all other networks
are chosen, among those that do not measure many more variants than the tuner's own, and tried on that family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.results import Axes, Line, plot_lines
from benchmarks.selection.transfer import FAMILIES, known_of_others, searched
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.search_settings import INFORMED, SearchSettings
from sartor.tuning.search.shipped.likeness import guide
from sartor.tuning.selection import auto

OWN = "the tuner's"
CHOSEN = "chosen on other families"
KNOWN, UNKNOWN = "known", "unknown"
"""Whether times of other families are known."""

# What may be chosen measures at most so many times the variants that the tuner's own limits do.
_MOST_EFFORT = 1.1
_CHANGES: Mapping[str, Sequence[Any]] = {
    "rounds": (0, 1, 2, 3),
    "share": (0.1, 0.2, 0.33, 0.5),
    "most": (1, 2, 3, 5),
    "optimism": (0.8, 0.9, 1.0),
    "gain": (0.0005, 0.001, 0.002, 0.004),
    "layout_weight": (0.0, 0.3, 0.6),
    "first": (1, 2, 3),
    "far": (1.0, 1.1, 1.3),
}
_FIRST_CHANGES: Mapping[str, Sequence[Any]] = {
    "shares": ((), (0.05, 0.2), (0.005, 0.025, 0.1), (0.02, 0.1, 0.4), (0.01, 0.02, 0.05, 0.1, 0.2)),
    "families": (0.0, 0.02, 0.1, 1.0),
    "near": (1.0, 1.05, 1.1, 1.3),
}


@dataclass(frozen=True)
class Replay:
    """A network's search with some limits.

    Attributes:
        network: name.
        knows: ``KNOWN`` or ``UNKNOWN``.
        setting: what differs from the tuner's limits.
        variants: of all tasks.
        measured: variants that the search measured.
        loss: of its plan, in percent of the best one.
    """

    network: str
    knows: str
    setting: str
    variants: int
    measured: int
    loss: float


def run(tables: Sequence[NetworkTables]) -> list[Replay]:
    """Replay the searches of all networks with all limits, and with those that are chosen on other families."""
    rows = [row for own in tables for row in _replays(own, tables)]
    return [*rows, *_chosen(rows)]


def plot(rows: Sequence[Replay], path: Path) -> Path:
    """Plot mean loss against the share of measured variants, one point for each setting."""
    lines = []
    for knows in (KNOWN, UNKNOWN):
        points = [(share, loss) for _, share, loss, _ in summaries(rows, knows)]
        lines.append(Line(f"other families {knows}", sorted(points)))
    axes = Axes("limits of the search", "% of the variants measured", "% above the best plan")
    return plot_lines({axes: lines}, path)


def summaries(rows: Sequence[Replay], knows: str) -> Iterator[tuple[str, float, float, float]]:
    """For each setting: measured variants in percent of all, mean loss and largest loss over networks."""
    for setting in dict.fromkeys(row.setting for row in rows if row.knows == knows):
        found = [row for row in rows if (row.knows, row.setting) == (knows, setting)]
        share = 100 * sum(each.measured for each in found) / sum(each.variants for each in found)
        yield setting, share, fmean(each.loss for each in found), max(each.loss for each in found)


def settings_around(own: SearchSettings) -> dict[str, SearchSettings]:
    """The tuner's limits, and all of which one differs; those of an informed first round only where there is one."""
    changed = {
        f"{name} {value:g}": replace(own, **{name: value})
        for name, values in _CHANGES.items()
        for value in values
        if value != getattr(own, name)
    }
    first = {
        f"{name} {_text(value)}": replace(own, informed=replace(own.informed, **{name: value}))
        for name, values in (_FIRST_CHANGES if own == INFORMED else {}).items()
        for value in values
        if value != getattr(own.informed, name)
    }
    return {OWN: own, **changed, **first}


def _text(value: float | Sequence[float]) -> str:
    return f"{value:g}" if isinstance(value, int | float) else " ".join(f"{each:g}" for each in value) or "none"


def _replays(own: NetworkTables, tables: Sequence[NetworkTables]) -> Iterator[Replay]:
    best = auto.select(own.problem).costs.latency
    variants = sum(len(each.variants) for each in {task.task.key: task for task in own.tasks.values()}.values())
    known = known_of_others(own, tables, FAMILIES)
    of_knowledge: tuple[tuple[str, SearchSettings, Sequence[Sample], CostModel | None], ...] = (
        (KNOWN, INFORMED, known, guide(known)),
        (UNKNOWN, SearchSettings(), (), None),
    )
    for knows, limits, samples, guided_by in of_knowledge:
        for name, each in settings_around(limits).items():
            measured, loss = searched(own, best, samples, each, guided_by)
            yield Replay(own.network, knows, name, variants, measured, loss)


def _chosen(rows: Sequence[Replay]) -> Iterator[Replay]:
    """For each network the replay with the limits that lose least on other families."""
    for row in rows:
        if row.setting != OWN:
            continue
        family = next((each for each in FAMILIES if row.network in each), (row.network,))
        others = [each for each in rows if each.network not in family]
        if not others:
            continue
        best = best_setting(others, row.knows)
        wanted = row.network, row.knows, best
        yield replace(next(each for each in rows if (each.network, each.knows, each.setting) == wanted), setting=CHOSEN)


def best_setting(rows: Sequence[Replay], knows: str) -> str:
    """The setting with the least mean loss among those that do not measure many more variants than the tuner's."""
    found = {name: (share, loss) for name, share, loss, _ in summaries(rows, knows)}
    affordable = [name for name, (share, _) in found.items() if share <= _MOST_EFFORT * found[OWN][0]]
    return min(affordable, key=lambda name: found[name][1])
