"""Reads the value of each setting of a compilation: of its own type, or a text as on the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.target import DEVICES, Target
from sartor.policies import (
    Double,
    Precision,
    Search,
)
from sartor.runtime.driver.device import MAX_THREADS
from sartor.settings.state_patterns import FORM, StatePattern
from sartor.settings.values import (
    byte_count,
    choice,
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
Reader = Callable[[str, object], object]
"""Reads the value of a setting; it takes the name that errors shall tell."""


def _target(name: str, value: object) -> Target:
    """A target, or a text such as ``cpu``, ``vulkan:ampere`` or ``cpu,vulkan``."""
    found = parsed(name, value, Target, _parsed_target, "a Target, or a text such as cpu or vulkan:ampere")
    if found.device not in DEVICES:
        raise refusal(name, value, f"a target of one of the devices {', '.join(DEVICES)}")
    return found


def _parsed_target(text: str) -> Target:
    parts = [part.partition(":") for part in text.split(",")]
    return Target.joined([Target.create(device, level if colon else None) for device, colon, level in parts])


def _error_measure(name: str, value: object) -> ErrorMeasure:
    return parsed(name, value, ErrorMeasure, ErrorMeasure.parse, "an ErrorMeasure, or a text that names one")


def pareto(name: str, value: object) -> tuple[Quantity, Quantity]:
    """Two different quantities, or a text such as ``latency,memory``.

    Raises:
        UsageError: if it is not; the message names the setting.
    """
    expected = f"two different ones of {', '.join(Quantity)}, such as latency,memory"
    items = tuple(value.split(",")) if isinstance(value, str) else several(name, value, expected)
    if len(items) != 2:
        raise refusal(name, value, expected)
    first, second = (choice(name, item, Quantity) for item in items)
    if first is second:
        raise refusal(name, value, expected)
    return first, second


def _selector(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise refusal(name, value, f"one of {', '.join(SELECTORS)}")
    return value


def _pins(name: str, value: object) -> tuple[Pin, ...]:
    expected = "pins, or texts of the form LAYER-GLOB=ROUTINE-GLOB"
    return tuple(parsed(name, each, Pin, Pin.parse, expected) for each in several(name, value, expected))


def _weight_blocks(name: str, value: object) -> tuple[int, ...]:
    expected = f"one or several of {', '.join(map(str, FOUR_BITS))}"
    blocks, known = several(name, value, expected), tuple(FOUR_BITS)
    if not blocks or any(block not in known for block in blocks):
        raise refusal(name, value, expected)
    return tuple(each for each in known if each in blocks)


def _states(name: str, value: object) -> tuple[StatePattern, ...]:
    expected = f"pairs, or texts of the form {FORM}"
    return tuple(
        parsed(name, each, StatePattern, StatePattern.parse, expected) for each in several(name, value, expected)
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
    found = path(name, value)
    if found.suffix.lower() != _WEIGHTS_SUFFIX:
        raise refusal(name, str(value), f"a file whose name ends in {_WEIGHTS_SUFFIX}, by which IREE knows its format")
    return found


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refusal(name, value, "True or False")
    return value


READERS: Mapping[str, Reader] = {
    "target": _target,
    "threads": _counted(1, MAX_THREADS),
    "max_error": lambda name, value: number(
        name, value, "a number of 0 or more, such as 1e-3", lambda given: 0 <= given < math.inf
    ),
    "precision": _chosen_from(Precision),
    "weight_blocks": _weight_blocks,
    "double": _chosen_from(Double),
    "calibration": path,
    "calibration_method": _chosen_from(CalibrationMethod),
    "error_measure": _error_measure,
    "objective": _chosen_from(Objective),
    "memory_limit": byte_count,
    "pareto": pareto,
    "selector": _selector,
    "plans": _counted(1),
    "shapes": input_shapes,
    "bindings": input_values,
    "pins": _pins,
    "database": path,
    "external_weights": _weights_file,
    "dump_directory": path,
    "jobs": _counted(1),
    "search": _chosen_from(Search),
    "time_budget": lambda name, value: number(
        name, value, "a number of seconds of 0 or more, or None for no limit", lambda given: 0 <= given < math.inf
    ),
    "tune_until": lambda name, value: number(
        name, value, "a fraction of the network's time from 0 to 1, such as 0.01", lambda given: 0 <= given <= 1
    ),
    "workers": lambda name, value: _text(name, value, "a scheduler's address such as tcp://host:8786, or its file"),
    "tune_for": lambda name, value: _text(name, value, "the digits of a kind of machine, or a part of its description"),
    "fixes_threads": _flag,
    "heeds_permissions": _flag,
    "states": _states,
    "finds_states": _flag,
}
