"""Options that say what a plan is for and what it must keep to."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sartor.commands.quantities import read_size
from sartor.errors import UsageError
from sartor.tuning.cost import Objective
from sartor.tuning.selection.limits import Quantity
from sartor.tuning.selection.registry import SELECTORS

ObjectiveOption = Annotated[
    Literal["latency", "cold", "memory"] | None,
    typer.Option(
        help="What to minimise: the time of an inference, the time until the end of the first one with the file read "
        "from the disk, or the memory. (default: latency)"
    ),
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(metavar="256MiB", help="Most memory that weights, activations, inputs and outputs may take together."),
]
ParetoOption = Annotated[
    str | None,
    typer.Option(
        metavar="X,Y",
        help=f"Also show the plans between the best for X and the best for Y, two of {', '.join(Quantity)}.",
    ),
]
SelectorOption = Annotated[str | None, typer.Option(help=f"Solver: {', '.join(SELECTORS)}. (default: auto)")]
SearchOption = Annotated[
    Literal["model", "full"] | None,
    typer.Option(help="Measure the variants that a cost model expects to be fast, or all of them. (default: model)"),
]
TimeBudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Time that compiling may take: tuning stops early enough to build and check what is best by then. "
        "(default: no limit)",
    ),
]


def read_objective(text: str | None) -> Objective:
    """The objective, latency if none is named."""
    return Objective(text or Objective.LATENCY)


def read_memory_limit(text: str | None) -> int | None:
    """Bytes.

    Raises:
        UsageError: if the text is no size.
    """
    return None if text is None else read_size("--memory-limit", text)


def read_pareto(text: str | None) -> tuple[Quantity, Quantity] | None:
    """The two quantities of a front.

    Raises:
        UsageError: if the text does not name two different ones.
    """
    if text is None:
        return None
    names = text.split(",")
    if len(names) != 2 or names[0] == names[1] or any(name not in set(Quantity) for name in names):
        raise UsageError(
            f"--pareto '{text}' cannot be read, expected two different ones of {', '.join(Quantity)}: latency,memory"
        )
    return Quantity(names[0]), Quantity(names[1])
