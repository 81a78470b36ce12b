"""Runs the comparisons of solvers and searches, and records what the documents show of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.record.circumstances import circumstances
from benchmarks.record.computed import Cell, Computed
from benchmarks.selection import layouts, learning, sampling, settings, sharing, solvers, transfer
from benchmarks.selection.extract import ESTIMATED
from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.qsdnn import comparison
from benchmarks.selection.results import write_csv
from benchmarks.selection.summaries import (
    Summary,
    learning_summary,
    library_summary,
    plain,
    sampling_summary,
    settings_summary,
    sharing_summary,
    solver_summary,
    transfer_summary,
)
from sartor.errors import UsageError


@dataclass(frozen=True)
class Comparison:
    """One comparison.

    Attributes:
        run: computes its rows of tables.
        summary: what documents show of the rows.
        plot: draws them.
        is_estimated: whether it is of estimated tables, as it compares searches and not networks.
        networks: that it is for; all if there are none.
    """

    run: Callable[[Sequence[NetworkTables]], Sequence[Any]]
    summary: Summary
    plot: Callable[[Sequence[Any], Path], Path]
    is_estimated: bool = False
    networks: tuple[str, ...] = ()


# Those of QS-DNN's table that the zoo has, and ResNet-50.
_OF_LIBRARIES = ("lenet5", "squeezenet", "mobilenet_v1", "googlenet", "vgg19", "resnet50")

COMPARISONS: Mapping[str, Comparison] = {
    "solvers": Comparison(solvers.run, solver_summary, solvers.plot),
    "learning": Comparison(learning.run, learning_summary, learning.plot, True, tuple(learning.NETWORKS)),
    "primitives": Comparison(
        partial(comparison.run, episodes=350, seeds=3), library_summary, comparison.plot, True, _OF_LIBRARIES
    ),
    "sharing": Comparison(sharing.run, sharing_summary, sharing.plot, True),
    "sharing-measured": Comparison(sharing.run, sharing_summary, sharing.plot),
    "sampling": Comparison(sampling.run, sampling_summary, sampling.plot),
    "transfer": Comparison(transfer.run, transfer_summary, transfer.plot),
    "settings": Comparison(settings.run, settings_summary, settings.plot),
    "layouts": Comparison(layouts.run, plain, layouts.plot),
}
"""All by the name of their table."""


def record(name: str, tables: Sequence[NetworkTables], figures: Path, results: Path) -> Computed:
    """Run a comparison, write its CSV file and plot, and record its summary.

    Raises:
        UsageError: if there is no such comparison, no table of a network that it needs, or code that is not committed.
    """
    if name not in COMPARISONS:
        raise UsageError(f"there is no comparison '{name}'; there are {', '.join(COMPARISONS)}")
    chosen = COMPARISONS[name]
    picked = [table for table in tables if not chosen.networks or table.network in chosen.networks]
    if not picked:
        raise UsageError(f"there are no tables of a network that '{name}' needs")
    now = circumstances(Path.cwd(), "benchmarks.selection")
    rows = chosen.run(picked)
    write_csv(rows, figures / f"{name}.csv")
    chosen.plot(rows, figures / f"{name}.svg")
    columns, shown = chosen.summary(rows)
    found = Computed(name, now, _source(picked), tuple(columns), tuple(tuple[Cell, ...](each) for each in shown))
    found.save(results)
    return found


def _source(tables: Sequence[NetworkTables]) -> str:
    """Of what tables a comparison is, in words."""
    machines = sorted({table.machine for table in tables})
    if machines == [ESTIMATED]:
        return "times by the routines' analytic models"
    return f"times of all variants measured on {' and '.join(machines)}, {tables[0].runtime}"
