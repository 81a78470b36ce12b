"""Which fraction of the error inside kernels reaches a network's outputs, network by network.

    python -m benchmarks.propagation resnet50 mobilenet_v2 vgg16

Before a plan in lower precision runs, a part of its variants' own errors is expected to reach the outputs
(``EXPECTED`` in ``plugin/planning/simulated_error.py``); then the fraction is fitted to the plan's error. Here plans
are made for several networks, precisions and budgets, and the fractions are recorded that the first plan of each was
fitted with, beside the median over all other networks, which is what would be expected if the network were not known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.record.circumstances import circumstances
from benchmarks.record.computed import Cell, Computed
from benchmarks.record.results import RESULTS
from benchmarks.zoo import write
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.planning import simulated_error
from sartor.policies import Precision

NETWORKS = ("squeezenet", "resnet18", "mobilenet_v2", "alexnet", "googlenet", "bert", "resnet50", "vgg16")
_PRECISIONS = (Precision.BF16, Precision.INT8, Precision.MIXED)
_NAME = "propagation"
_COLUMNS = ("network", "precision", "allowed", "error of the plan", "fraction", "median of other networks")

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Fit:
    """The fraction that explains the error of the first plan that ran.

    Attributes:
        network: name.
        precision: in which the plan was made.
        allowed: relative error.
        measured: error of the plan.
        fraction: of the error inside kernels.
    """

    network: str
    precision: str
    allowed: float
    measured: float
    fraction: float


class _Listener(logging.Handler):
    """Collects what the fit of fractions logs: a plan's error, and the fraction."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[tuple[float, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.msg == simulated_error.FITTED:
            measured, fraction = (float(str(arg)) for arg in record.args)
            self.found.append((measured, fraction))


@contextmanager
def listening() -> Iterator[list[tuple[float, float]]]:
    """Collect the errors and fractions of all plans that are fitted meanwhile."""
    log, listener = logging.getLogger(simulated_error.__name__), _Listener()
    level = log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        yield listener.found
    finally:
        log.setLevel(level)
        log.removeHandler(listener)


def fits(model: Path, config: CompileConfig, budgets: Sequence[float]) -> Iterator[Fit]:
    """The fractions of a network's plans, where they tell any.

    Raises:
        SartorError: if a plan cannot be made.
    """
    for precision in _PRECISIONS:
        for allowed in budgets:
            with listening() as found:
                chosen = replace(config, precision=precision, max_error=allowed)
                compile_model(model, model.with_suffix(".vmfb"), chosen)
            if found:
                measured, fraction = found[0]
                yield Fit(model.stem, precision.value, allowed, measured, fraction)


def of_networks(found: Sequence[Fit]) -> dict[str, float]:
    """Each network's median fraction, so that those with many plans count as much as others."""
    names = dict.fromkeys(each.network for each in found)
    return {name: median(each.fraction for each in found if each.network == name) for name in names}


def rows_of(found: Sequence[Fit]) -> Iterator[tuple[Cell, ...]]:
    """What the document shows: each plan, and in the last row the median over networks."""
    medians = of_networks(found)
    for each in found:
        others = [value for name, value in medians.items() if name != each.network]
        expected = median(others) if others else None
        yield each.network, each.precision, each.allowed, each.measured, each.fraction, expected
    if medians:
        yield "median of networks", "", None, None, median(medians.values()), None


@app.command()
def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks.")] = None,
    budget: Annotated[list[float], typer.Option(help="Allowed relative errors; repeatable.")] = [0.01, 0.05],  # noqa: B006
    threads: Annotated[int, typer.Option(help="Threads.")] = 2,
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/propagation"),
) -> None:
    """Make plans, and record the fractions."""
    directory.mkdir(parents=True, exist_ok=True)
    now = circumstances(Path.cwd(), f"benchmarks.{_NAME}")
    found: list[Fit] = []
    for network in networks or NETWORKS:
        config = CompileConfig(threads=threads, database=directory / "tuning.db")
        for fit in fits(write(network, directory), config, budget):
            found.append(fit)
            print(fit, flush=True)
            # The largest networks take minutes for each plan, and what is known already is of use without them.
            Computed(_NAME, now, "the errors of plans that ran", _COLUMNS, tuple(rows_of(found))).save(RESULTS)


if __name__ == "__main__":
    app()
