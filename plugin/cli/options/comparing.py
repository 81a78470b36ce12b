"""Options that say what is compared and how far it may be off, and functions that read them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sartor.errors import UsageError

_BISECT = "--bisect"
# The bound that stands for what is allowed of the outputs.
_ALLOWED = "inf"

ComparedModelOption = Annotated[
    Path, typer.Option("--vs", metavar="MODEL.onnx", help="The model it was compiled from.")
]
ArraysOption = Annotated[
    Path | None, typer.Option("--inputs", metavar="FILE.npz", help="One array per input. (default: random values)")
]
AllowedErrorOption = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        help="Relative error allowed. (default: 0.01 for a module in lower precision, else 0.001; more if the "
        "model's own types round off more)",
    ),
]
LayersOption = Annotated[
    bool, typer.Option("--layers", help="Show how far every layer is off, in the network and alone.")
]
BisectOption = Annotated[
    float | None,
    typer.Option(
        _BISECT,
        metavar="[BOUND]",
        min=0.0,
        help="Find the first layer whose error exceeds this; without a number, what is allowed of the outputs.",
    ),
]
RewritesOption = Annotated[
    bool,
    typer.Option(
        "--rewrites",
        help="Run the model behind each rewrite before its import, and find the first behind which outputs differ.",
    ),
]


class BisectsByDefault(TyperCommand):
    """``--bisect`` may stand without a number, which options of typer cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], ""]
        pairs = zip(args, following, strict=True)
        filled = [[text] if text != _BISECT or _is_number(after) else [text, _ALLOWED] for text, after in pairs]
        return super().parse_args(ctx, [*itertools.chain.from_iterable(filled)])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_bisection(bound: float | None, allowed: float) -> float | None:
    """The error that ``--bisect`` looks for, which may be the one ``allowed``; None without the option.

    Raises:
        UsageError: for NaN, which some versions of typer take for a number within limits.
    """
    if bound is not None and math.isnan(bound):
        raise UsageError("--bisect is no number; give the error that a layer may have")
    return allowed if bound is not None and math.isinf(bound) else bound
