"""Options for a plan's objective and constraints, and functions that parse their values."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from sartor.cli.options.beginning import elapsed
from sartor.cli.options.common import check_error_bound
from sartor.codegen.ir.block_packing import FOUR_BITS, USUAL_BLOCK
from sartor.codegen.routine_registry import may_name
from sartor.errors import UsageError
from sartor.policies import DEFAULT_MAX_ERROR, DEFAULT_PLANS, LOW_PRECISION_MAX_ERROR, Precision
from sartor.settings.values import byte_count
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.registry import SELECTORS

PrecisionOption = Annotated[
    Literal["f32", "tf32", "bf16", "f16", "int8", "int8-weights", "int4-weights", "mixed"] | None,
    typer.Option(
        help="What layers may be computed in besides f32, where that is faster; tf32 is NVIDIA's; int8-weights and "
        "int4-weights are --weights int8 and int4. "
        "(default: f32, and products in 8 bits that the model permits by an accuracy_level of 4)"
    ),
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
_WEIGHTS, _WEIGHTS_IN_BLOCKS = ("int4", "int8", "mixed"), ("int4", "mixed")
DoubleOption = Annotated[
    Literal["f32", "f64"] | None,
    typer.Option(
        help="What float64 is computed in, behind inputs and before outputs of float64: f64 takes IREE's own code, "
        "which is slower. (default: f32)"
    ),
]
MaxErrorOption = Annotated[
    float | None,
    typer.Option(
        help="Error allowed against the reference, by the --error-measure. Without it, models in f16 or 8 bits may "
        "have the error that their own types round off, and layers of those in 8 bits are compared one by one. "
        f"(default: {DEFAULT_MAX_ERROR:g}, with a --precision below f32 {LOW_PRECISION_MAX_ERROR:g})"
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz|FILE.npy|DIR",
        help="Samples on which errors are measured: one array per input, with a sample axis. (default: random values)",
    ),
]
CalibrationMethodOption = Annotated[
    Literal["minmax", "percentile", "mse", "entropy"] | None,
    typer.Option(help="How 8-bit ranges are found on the samples. (default: minmax)"),
]
ErrorMeasureOption = Annotated[
    str | None,
    typer.Option(
        metavar="relative|cosine|top1|tokens|FILE.py:FUNCTION",
        help="What an error is; tokens is for decoders with logits, a function takes a sample's outputs and the "
        "expected ones. (default: relative)",
    ),
]
ObjectiveOption = Annotated[
    Literal["latency", "cold", "cold+latency", "memory"] | None,
    typer.Option(
        help="What to minimise: the time of an inference, the time until the end of the first one with the file read "
        "from the disk, or the memory; cold+latency writes a plan for the first inference and one that takes over. "
        "(default: latency)"
    ),
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        metavar="256MiB|BYTES", help="Most memory that weights, activations, inputs and outputs may take together."
    ),
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
PlansOption = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="Compile and measure whole up to K plans whose predicted times differ by less than predictions err. "
        f"(default: {DEFAULT_PLANS})",
    ),
]
TimeBudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Time that compiling may take: tuning stops early enough to build and check what is best by then; with 0 "
        "the plan is predicted, and no layer is measured. (default: no limit)",
    ),
]
FastOption = Annotated[bool, typer.Option("--fast", help="Predict the plan and measure no layer: --time-budget 0.")]

TuneUntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="PERCENT%",
        help="Tune until what is left to measure promises to save less than this part of the network's time, such as "
        "3%: the rest keeps predicted routines. (default: each kind of layer is measured)",
    ),
]
_LOG = logging.getLogger(__name__)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")


def read_tune_until(text: str | None) -> float:
    """The fraction that a text such as ``1%`` says; 0 if there is none.

    Raises:
        UsageError: if it is no percentage up to 100%.
    """
    if text is None:
        return 0.0
    found = _PERCENT.fullmatch(text)
    if found is None or float(found[1]) > 100:
        raise UsageError(f"--tune-until '{text}' cannot be read, expected a percentage up to 100% such as 3%")
    return float(found[1]) / 100


def read_time_budget(seconds: float | None, *, fast: bool, until: str | None = None) -> float | None:
    """What is left of the time budget in seconds, which counts from the beginning of the command; None for no limit.

    Raises:
        UsageError: if options are given that contradict each other.
    """
    if fast and seconds not in (None, 0.0):
        raise UsageError(f"--fast is --time-budget 0 and contradicts --time-budget {seconds:g}; leave one of them out")
    if fast and until is not None:
        raise UsageError(
            f"--fast measures nothing, and --tune-until {until} tells when to end that; leave one of them out"
        )
    if fast or seconds is None:
        return 0.0 if fast else None
    if not 0 < seconds < math.inf:
        # Others are refused with all settings.
        return seconds
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


def read_max_error(bound: float | None) -> float | None:
    """The allowed error; None for the default of the precision.

    Raises:
        UsageError: if the bound is negative or NaN.
    """
    return None if bound is None else check_error_bound(bound)


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
    if text is not None and not precision.quantises_values:
        raise UsageError(
            f"--calibration-method {text} finds ranges for 8 bits, which --precision {precision} does not use; "
            "give --precision int8 or mixed"
        )
    return CalibrationMethod(text or CalibrationMethod.MIN_MAX)


def read_error_measure(text: str | None) -> ErrorMeasure:
    """The measure of error; by default the relative error.

    Raises:
        UsageError: if there is no such measure.
    """
    return RELATIVE if text is None else ErrorMeasure.parse(text)


def read_objective(text: str | None) -> Objective:
    """The objective; by default latency."""
    return Objective(text or Objective.LATENCY)


def read_memory_limit(text: str | None) -> int | None:
    """Bytes; a number without a unit is one, as messages and JSON say it.

    Raises:
        UsageError: if the text is not a size.
    """
    if text is None:
        return None
    return byte_count("--memory-limit", text)


def read_pins(texts: Sequence[str] | None) -> tuple[Pin, ...]:
    """Restrictions of layers to routines.

    Raises:
        UsageError: if a text has another form, or no routine can ever fit it.
    """
    pins = tuple(map(Pin.parse, texts or ()))
    for pin in pins:
        if not may_name(pin.routines):
            raise UsageError(
                f"--pin '{pin.layers}={pin.routines}' fits no routine; a routine is named like "
                "cpu:f32/conv2d.direct{tile=4}, '*direct*' fits that, and 'sartor routines MODEL.onnx' lists all"
            )
    return pins
