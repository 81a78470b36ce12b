"""Write and parse descriptors of variants, such as ``cpu:f32/conv2d.tiled{depth=4}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PATTERN = re.compile(r"(?:(\w+):)?(\w+)/(\w+)\.(\w+)(?:\{(.*)\})?")
_NUMBER = re.compile("[0-9]{1,18}")
_PARAMETERS = "{"

CHILDNET = "childnet"
"""What descriptors of childnets have in the place of an operation."""

SHARES = "shares"
"""The parameter that counts workgroups which share the steps, and so the weights, of a recurrent layer."""


@dataclass(frozen=True)
class Descriptor:
    """The parts of a descriptor (SoftNeuro, section III-A).

    Attributes:
        device: where the variant runs.
        dtype: element type that it computes in.
        operation: what it computes, such as ``conv2d``.
        routine: name of the routine.
        parameters: parameters of the routine that are single numbers; others are left out.
    """

    device: str
    dtype: str
    operation: str
    routine: str
    parameters: Mapping[str, int]

    @staticmethod
    def parse(text: str) -> Descriptor | None:
        """Parse a text; None if it is not a descriptor."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            return None
        pairs = (pair.partition("=") for pair in (match[5] or "").split(","))
        numbers = {name: int(value) for name, _, value in pairs if _NUMBER.fullmatch(value)}
        return Descriptor(match[1] or "", match[2], match[3], match[4], numbers)


def write_descriptor(
    device: str, dtype: str, operation: str, routine: str, parameters: Mapping[str, tuple[int, ...] | int]
) -> str:
    """The descriptor of a variant."""
    listed = ",".join(f"{name}={_value(value)}" for name, value in sorted(parameters.items()))
    head = f"{device}:{dtype}/{operation}.{routine}"
    return head + (f"{{{listed}}}" if listed else "")


def without_parameters(descriptor: str) -> str:
    """``cpu:f32/conv2d.tiled``: device, type, operation and routine."""
    return descriptor.partition(_PARAMETERS)[0]


def dtype_in(descriptor: str) -> str:
    """``f32``: the element type that the variant computes in."""
    return without_parameters(descriptor).partition(":")[2].partition("/")[0]


def device_in(descriptor: str) -> str:
    """``cpu``: the device on which the variant runs; empty if it names none."""
    device, colon, _ = without_parameters(descriptor).partition(":")
    return device if colon else ""


def algorithm_of(descriptor: str) -> str:
    """``conv2d.tiled``: operation and routine, whatever the parameters, the device and the type."""
    return without_parameters(descriptor).rpartition("/")[2]


def _value(value: tuple[int, ...] | int) -> str:
    return str(value) if isinstance(value, int) else "x".join(map(str, value))
