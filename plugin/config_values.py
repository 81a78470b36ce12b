"""Declares each setting of a compilation once: what reads its value, and how the command line spells and explains it.

A value is of the setting's own type. Where the command line takes more than a number, a text as there will do, such as
``256MiB`` or ``1%``; a number is no text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.target import Target
from sartor.devices import KINDS
from sartor.errors import UsageError
from sartor.policies import DEFAULT_MAX_ERROR, DEFAULT_PLANS, LOW_PRECISION_MAX_ERROR, Double, Precision, Search
from sartor.runtime.driver.device import MAX_THREADS
from sartor.settings.state_patterns import FORM, StatePattern
from sartor.settings.values import (
    byte_count,
    choice,
    fraction,
    input_shapes,
    input_values,
    number,
    parsed,
    path,
    refusal,
    several,
    whole_number,
)
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.registry import SELECTORS

_WEIGHTS_SUFFIX = ".irpa"
# What plans may be weighed by; how much of the weights lies in a file twice has a bound.
_WEIGHED = tuple(quantity for quantity in Quantity if quantity is not Quantity.REPEATED)
Reader = Callable[[str, object], Any]
"""Reads the value of a setting; it takes the name that errors shall tell."""


@dataclass(frozen=True)
class Setting:
    """A setting of a compilation, from which its check, its option and its line of the documentation are made.

    Attributes:
        read: reads a value.
        option: the option of the command line that sets it; None if there is none.
        help: what the option is for.
        metavar: the form of its value; None if the type of the option tells it.
        is_settled: whether a plan settles it, so that it cannot be given beside one.
    """

    read: Reader
    option: str | None = None
    help: str = ""
    metavar: str | None = None
    is_settled: bool = False

    def asked(self, value: object) -> Any:
        """A value of the option.

        Raises:
            UsageError: if it is not valid; the message names the option.
        """
        assert self.option is not None
        return self.read(self.option, value)


def _target(name: str, value: object) -> Target:
    """A target, or a text such as ``cpu``, ``vulkan:ampere`` or ``cpu,vulkan``."""
    target = parsed(name, value, Target, _parsed_target, "a Target, or a text such as cpu or vulkan:ampere")
    if target.device not in KINDS:
        raise refusal(name, value, f"a target of one of the devices {', '.join(KINDS)}")
    return target


def _parsed_target(text: str) -> Target:
    parts = [part.partition(":") for part in text.split(",")]
    return Target.joined([Target.create(device, level if colon else None) for device, colon, level in parts])


def _error_measure(name: str, value: object) -> ErrorMeasure:
    return parsed(name, value, ErrorMeasure, ErrorMeasure.parse, "an ErrorMeasure, or a text that names one")


def _pareto(name: str, value: object) -> tuple[Quantity, Quantity]:
    """Two different quantities, or a text such as ``latency,memory``."""
    expected = f"two different ones of {', '.join(_WEIGHED)}, such as latency,memory"
    items = tuple(value.split(",")) if isinstance(value, str) else several(name, value, expected)
    if len(items) != 2:
        raise refusal(name, value, expected)
    for item in items:
        if item not in _WEIGHED:
            raise refusal(name, item, f"one of {', '.join(_WEIGHED)}")
    first, second = (choice(name, item, Quantity) for item in items)
    if first is second:
        raise refusal(name, value, expected)
    return first, second


def _precision(name: str, value: object) -> Precision:
    """A precision that a user can name."""
    precision = choice(name, value, Precision)
    if precision.is_permitted and not isinstance(value, Precision):
        raise refusal(
            name, value, f"one of {', '.join(precision for precision in Precision if not precision.is_permitted)}"
        )
    return precision


def _selector(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in SELECTORS:
        raise refusal(name, value, f"one of {', '.join(SELECTORS)}")
    return value


def _pins(name: str, value: object) -> tuple[Pin, ...]:
    expected = "pins, or texts of the form LAYER-GLOB=ROUTINE-GLOB"
    return tuple(parsed(name, text, Pin, Pin.parse, expected) for text in several(name, value, expected))


def _weight_blocks(name: str, value: object) -> tuple[int, ...]:
    expected = f"one or several of {', '.join(map(str, FOUR_BITS))}"
    blocks, known = several(name, value, expected), tuple(FOUR_BITS)
    if not blocks or any(block not in known for block in blocks):
        raise refusal(name, value, expected)
    return tuple(block for block in known if block in blocks)


def _states(name: str, value: object) -> tuple[StatePattern, ...]:
    expected = f"pairs, or texts of the form {FORM}"
    return tuple(
        parsed(name, text, StatePattern, StatePattern.parse, expected) for text in several(name, value, expected)
    )


def check_ranges_are_used(name: str, method: str, precision: Precision) -> None:
    """Make sure that a calibration method is named where there are ranges to find.

    Raises:
        UsageError: if not; the message names the setting.
    """
    if not precision.quantises_values:
        raise UsageError(
            f"{name} {method} finds ranges for 8 bits, which --precision {precision} does not use; give --precision "
            "int8 or mixed"
        )


def _chosen_from(choices: type[StrEnum]) -> Reader:
    return lambda name, value: choice(name, value, choices)


def _counted(least: int, most: int | None = None) -> Reader:
    return lambda name, value: whole_number(name, value, least, most)


def _text(name: str, value: object, expected: str) -> str:
    if not isinstance(value, str) or not value:
        raise refusal(name, value, expected)
    return value


def _weights_file(name: str, value: object) -> Path:
    file = path(name, value)
    if file.suffix.lower() != _WEIGHTS_SUFFIX:
        raise refusal(name, str(value), f"a file whose name ends in {_WEIGHTS_SUFFIX}, by which IREE knows its format")
    return file


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refusal(name, value, "True or False")
    return value


SETTINGS: Mapping[str, Setting] = {
    "target": Setting(_target, "--target"),
    "threads": Setting(_counted(1, MAX_THREADS), "--threads"),
    "max_error": Setting(
        lambda name, value: number(
            name, value, "a number of 0 or more, such as 1e-3", lambda given: 0 <= given < math.inf
        ),
        "--max-error",
        "Error allowed against the reference, by the --error-measure. Without it, models in f16 or 8 bits may "
        "have the error that their own types round off, and layers of those in 8 bits are compared one by one. "
        f"(default: {DEFAULT_MAX_ERROR:g}, with a --precision below f32 {LOW_PRECISION_MAX_ERROR:g})",
    ),
    "precision": Setting(
        _precision,
        "--precision",
        "What layers may be computed in besides f32, where that is faster; tf32 is NVIDIA's; int8-weights and "
        "int4-weights are --weights int8 and int4. "
        "(default: f32, and products in 8 or 16 bits that the model permits by an accuracy_level of 4)",
        is_settled=True,
    ),
    "weight_blocks": Setting(_weight_blocks),
    "double": Setting(
        _chosen_from(Double),
        "--double",
        "What float64 is computed in, behind inputs and before outputs of float64: f64 takes IREE's own code, "
        "which is slower. (default: f32)",
    ),
    "calibration": Setting(
        path,
        "--calibration",
        "Samples on which errors are measured: one array per input, with a sample axis. (default: random values)",
        "FILE.npz|FILE.npy|DIR",
    ),
    "calibration_method": Setting(
        _chosen_from(CalibrationMethod),
        "--calibration-method",
        "How 8-bit ranges are found on the samples. (default: minmax)",
        is_settled=True,
    ),
    "error_measure": Setting(
        _error_measure,
        "--error-measure",
        "What an error is; tokens is for decoders with logits, a function takes a sample's outputs and the "
        "expected ones. (default: relative)",
        "relative|cosine|top1|tokens|FILE.py:FUNCTION",
    ),
    "objective": Setting(
        _chosen_from(Objective),
        "--objective",
        "What to minimise: the time of an inference, the time until the end of the first one with the file read "
        "from the disk, or the memory; cold+latency writes a plan for the first inference and one that takes over; "
        "regret, for any size, is the worst ratio to the best plan for a size. "
        "(default: latency)",
        is_settled=True,
    ),
    "memory_limit": Setting(
        byte_count,
        "--memory-limit",
        "Most memory that weights, activations, inputs and outputs may take together.",
        "256MiB|BYTES",
        is_settled=True,
    ),
    "pareto": Setting(
        _pareto,
        "--pareto",
        f"Also show the plans between the best for X and the best for Y, two of {', '.join(Quantity)}.",
        "X,Y",
        is_settled=True,
    ),
    "selector": Setting(_selector, "--selector", f"Solver: {', '.join(SELECTORS)}. (default: auto)", is_settled=True),
    "plans": Setting(
        _counted(1),
        "--plans",
        "Compile and measure whole up to K plans whose predicted times differ by less than predictions err. "
        f"(default: {DEFAULT_PLANS})",
        "K",
        is_settled=True,
    ),
    "shapes": Setting(input_shapes, "--shape"),
    "bindings": Setting(input_values, "--bind"),
    "pins": Setting(
        _pins, "--pin", "Restrict layers to routines; repeatable.", "LAYER-GLOB=ROUTINE-GLOB", is_settled=True
    ),
    "database": Setting(
        path, "--tuning-db", "Tuning database. (default: in the user's cache directory)", is_settled=True
    ),
    "external_weights": Setting(
        _weights_file,
        "--external-weights",
        "Write the weights to this file beside the module.",
        f"FILE{_WEIGHTS_SUFFIX}",
    ),
    "dump_directory": Setting(
        path,
        "--dump-dir",
        "Write the model as loaded and as prepared, and the module after every pass, to this folder, in a folder of "
        "its own for each of several plans.",
    ),
    "jobs": Setting(_counted(1)),
    "search": Setting(
        _chosen_from(Search),
        "--search",
        "Measure the variants that a cost model expects to be fast, or all of them. (default: model)",
        is_settled=True,
    ),
    "time_budget": Setting(
        lambda name, value: number(
            name,
            value,
            "a number of seconds of 0 or more; without one there is no limit",
            lambda given: 0 <= given < math.inf,
        ),
        "--time-budget",
        "Time that compiling may take: tuning stops early enough to build and check what is best by then; with 0 "
        "the plan is predicted, and no layer is measured. (default: no limit)",
        "SECONDS",
        is_settled=True,
    ),
    "tune_until": Setting(
        lambda name, value: fraction(name, value, "a fraction of the network's time from 0 to 1, such as 0.03"),
        "--tune-until",
        "Tune until what is left to measure promises to save less than this part of the network's time: the rest "
        "keeps predicted routines; with 0 each kind of layer is measured. (default: 1% where the package holds times "
        "of other networks on such a CPU, 0 elsewhere and within a time budget)",
        "PERCENT%",
        is_settled=True,
    ),
    "vs_stock": Setting(
        _flag,
        "--vs-stock",
        "Build the model that IREE compiles whole, too, and time it beside the plan, however slow its layers are.",
        is_settled=True,
    ),
    "workers": Setting(
        lambda name, value: _text(name, value, "a scheduler's address such as tcp://host:8786, or its file"),
        "--workers",
        "Measure on the workers of this Dask scheduler, which 'sartor worker' starts. (default: here)",
        "tcp://HOST:8786|FILE",
        is_settled=True,
    ),
    "tune_for": Setting(
        lambda name, value: _text(name, value, "the digits of a kind of machine, or a part of its description"),
        "--tune-for",
        "Kind of the workers' machines to tune for, if there are several.",
        "KIND",
        is_settled=True,
    ),
    "fixes_threads": Setting(_flag),
    "names_threads": Setting(_flag),
    "heeds_permissions": Setting(_flag),
    "states": Setting(_states, "--state"),
    "finds_states": Setting(_flag),
}
"""The settings by the names of their fields in ``CompileConfig``."""
MEASURING = ("tune_until", "search", "plans")
"""Settings that say what is measured, which contradict a time budget of 0 unless they are the usual ones."""
