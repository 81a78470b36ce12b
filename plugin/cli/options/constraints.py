"""Options of a compilation as they are declared, and readers of those that say more than the value of one setting."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.models import OptionInfo

from sartor.cli.options.beginning import elapsed
from sartor.codegen.ir.block_packing import FOUR_BITS, USUAL_BLOCK
from sartor.codegen.routine_registry import check_glob
from sartor.config_values import SETTINGS, check_ranges_are_used
from sartor.errors import UsageError
from sartor.policies import Precision
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.selection.problem.pin import Pin


def declared(name: str) -> OptionInfo:
    """The option of the command line that sets a field of ``CompileConfig``, as it is declared there."""
    setting = SETTINGS[name]
    assert setting.option is not None
    option: OptionInfo = typer.Option(setting.option, metavar=setting.metavar, help=setting.help)
    return option


PrecisionOption = Annotated[
    Literal["f32", "tf32", "bf16", "f16", "int8", "int8-weights", "int4-weights", "mixed"] | None, declared("precision")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="int4[:BLOCK,…]|int8|mixed[:BLOCK,…]",
        help="What weights of floats may be stored in, layer by layer, while layers compute in f32: those of products "
        "in 4 bits by blocks of so many rows "
        f"({', '.join(map(str, FOUR_BITS))}; {USUAL_BLOCK} if none is named; of several, each layer's is selected), "
        "filters and those of products in 8 bits, or both. (default: floats)",
    ),
]
FastOption = Annotated[bool, typer.Option("--fast", help="Predict the plan and measure no layer: --time-budget 0.")]
_WEIGHTS, _WEIGHTS_IN_BLOCKS = ("int4", "int8", "mixed"), ("int4", "mixed")
_LOG = logging.getLogger(__name__)


def read_time_budget(seconds: float | None, *, fast: bool) -> float | None:
    """What is left of the time budget in seconds, which counts from the beginning of the command; None for no limit.

    Raises:
        UsageError: if options are given that contradict each other.
    """
    if fast and seconds not in (None, 0.0):
        raise UsageError(f"--fast is --time-budget 0 and contradicts --time-budget {seconds:g}; leave one of them out")
    if fast or seconds is None:
        return 0.0 if fast else None
    if not SETTINGS["time_budget"].asked(seconds):
        return 0.0
    left = max(0.0, seconds - elapsed())
    if not left:
        _LOG.warning("the time budget was spent before the compilation began: nothing is measured, as with --fast")
    return left


def read_precision(text: str | None, weights: str | None = None) -> Precision:
    """The precision, f32 if none is named; ``weights`` is what weights alone may be stored in, with or without blocks.

    Raises:
        UsageError: if both are given, or weights cannot be stored so.
    """
    if text is not None and weights is not None:
        raise UsageError(
            f"--weights {weights} is a precision that stores weights alone in few bits, and --precision {text} is "
            "another; leave one of them out"
        )
    if weights is None:
        return Precision(text or Precision.F32)
    kind, colon, _ = weights.partition(":")
    if kind not in _WEIGHTS or (colon and kind not in _WEIGHTS_IN_BLOCKS):
        raise UsageError(
            f"--weights '{weights}' is none of {', '.join(_WEIGHTS)}, of which {' and '.join(_WEIGHTS_IN_BLOCKS)} may "
            "be followed by rows of a block, such as int4:64 or mixed:32,128"
        )
    return Precision(f"{kind}-weights")


def read_weight_blocks(weights: str | None) -> tuple[int, ...]:
    """The rows of a block in which weights may be rounded, the usual number if none is named.

    Raises:
        UsageError: if they are no such numbers.
    """
    _, colon, blocks = (weights or "").partition(":")
    if not colon:
        return (USUAL_BLOCK,)
    known = {str(block): block for block in FOUR_BITS}
    names = blocks.split(",")
    if not known.keys() >= {*names}:
        raise UsageError(
            f"--weights {weights}: a block has {', '.join(known)} rows; name one or several, separated by commas"
        )
    return tuple(known[name] for name in names)


def read_calibration(path: Path | None) -> Path | None:
    """Check the path of the samples; returns it.

    Raises:
        UsageError: if it does not exist.
    """
    if path is not None and not path.exists():
        raise UsageError(f"--calibration '{path}' is not there")
    return path


def read_calibration_method(text: str | None, precision: Precision) -> CalibrationMethod:
    """The calibration method; by default min-max.

    Raises:
        UsageError: if a method is named and the precision does not allow 8 bits.
    """
    if text is not None:
        check_ranges_are_used("--calibration-method", text, precision)
    return CalibrationMethod(text or CalibrationMethod.MIN_MAX)


def read_pins(texts: Sequence[str] | None) -> tuple[Pin, ...]:
    """Restrictions of layers to routines.

    Raises:
        UsageError: if a text has another form, or no routine can ever fit it.
    """
    pins: tuple[Pin, ...] = SETTINGS["pins"].asked(texts or ())
    for pin in pins:
        check_glob(pin.routines, f"--pin '{pin}'")
    return pins
