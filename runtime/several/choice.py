"""Choosing among the plans of a file: those of a device, by the shapes of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.several.record import Alternative

Shapes = Mapping[str, tuple[int, ...]]

_SHOWN = 8


@dataclass(frozen=True)
class PlanChoice:
    """Which plan of a file is meant.

    Attributes:
        shapes: asked of inputs, by name; of inputs that are left out any.
        inputs: shapes of the arrays that will be given, which count where none is asked.
        device: as for ``Session``; None for the file's first.
        level: of the CPU; None for the one that the module chooses here.
    """

    shapes: Shapes = field(default_factory=dict)
    inputs: Shapes = field(default_factory=dict)
    device: str | None = None
    level: str | None = None


LevelHere = Callable[[Sequence[Alternative]], str | None]
"""Gives the CPU level that a file with these plans of a device chooses on this machine."""

FIRST = PlanChoice()
"""The first plan of those that run here."""


def chosen_plan(
    alternatives: Sequence[Alternative], choice: PlanChoice, label: str, level_here: LevelHere
) -> Alternative:
    """The plan that a choice means.

    Args:
        found: the plans of a file.
        choice: which one.
        label: names the file.
        level_here: of several.

    Raises:
        UsageError: if there is no such plan.
        DeviceError: if there is none for the device.
    """
    device = alternatives[0].device if choice.device is None else choice.device.partition(":")[0]
    own = of_device(alternatives, device, label)
    levels = [*dict.fromkeys(alternative.level for alternative in own)]
    level = choice.level or (level_here(own) if len(levels) > 1 else levels[0])
    if level not in levels:
        raise UsageError(f"{label} has no plan for the level {level} of the {device}, it has {', '.join(levels)}")
    own = tuple(alternative for alternative in own if alternative.level == level)
    check_known(choice.shapes, own[0].inputs, label)
    wanted = fitting(signatures_of(own, ""), {**choice.inputs, **choice.shapes}, choice.shapes)
    return next(alternative for alternative in own if alternative.inputs == wanted.inputs)


def check_known(shapes: Shapes, inputs: Sequence[TensorSpec], label: str) -> None:
    """Make sure that shapes are asked of inputs that a file has.

    Raises:
        UsageError: if not; ``label`` names the file.
    """
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            known = ", ".join(f"'{name_of_plan}'" for name_of_plan in names) or "none"
            raise UsageError(f"--shape names the input '{name}', which {label} does not have; its inputs are {known}")


def of_device(alternatives: Sequence[Alternative], device: str, label: str) -> tuple[Alternative, ...]:
    """The plans for a kind of device.

    Raises:
        DeviceError: if there are none; ``label`` names the file.
    """
    chosen = tuple(alternative for alternative in alternatives if alternative.device == device)
    if not chosen:
        have = ", ".join(dict.fromkeys(alternative.device for alternative in alternatives))
        raise DeviceError(f"{label} has no plan for the device '{device}', it has plans for {have}")
    return chosen


def signatures_of(alternatives: Sequence[Alternative], entry: str) -> tuple[Signature, ...]:
    """What the plans take and give: one signature for each shape of the inputs, the first plan's first."""
    return tuple(
        {
            alternative.shapes: Signature(entry, alternative.inputs, alternative.outputs)
            for alternative in alternatives
        }.values()
    )


def fitting(signatures: Sequence[Signature], shapes: Shapes, asked: Container[str] = ()) -> Signature:
    """The signature with these shapes of the inputs, by name.

    Of inputs whose shape is the same in all signatures it counts only if it is ``asked``: arrays are checked later.

    Raises:
        UsageError: if there is none.
    """
    for signature in signatures:
        if all(shapes.get(spec.name, spec.shape) == spec.shape for spec in signature.inputs):
            return signature
    names = [spec.name for spec in signatures[0].inputs if spec.name in asked or _varies(signatures, spec.name)]
    for signature in signatures:
        if all(shapes.get(spec.name, spec.shape) == spec.shape for spec in _named(signature, names)):
            return signature
    given = " ".join(f"{name}={_text(shapes[name])}" for name in names if name in shapes)
    have = [
        " ".join(f"{spec.name}={_text(spec.shape)}" for spec in _named(signature, names)) for signature in signatures
    ]
    more = f" and {len(have) - _SHOWN} more" if len(have) > _SHOWN else ""
    raise UsageError(
        f"the module has no plan for inputs of the shapes {given}; it has plans for {'; '.join(have[:_SHOWN])}{more}"
    )


def _varies(signatures: Sequence[Signature], name: str) -> bool:
    return len({spec.shape for signature in signatures for spec in signature.inputs if spec.name == name}) > 1


def _named(signature: Signature, names: Sequence[str]) -> list[TensorSpec]:
    return [spec for spec in signature.inputs if spec.name in names]


def _text(shape: Sequence[int | None]) -> str:
    return ",".join(map(str, shape))
