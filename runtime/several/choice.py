"""Choosing among the plans of a file: those of a device, by the shapes of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.several.record import Alternative

_SHOWN = 8


def of_device(found: Sequence[Alternative], device: str, label: str) -> tuple[Alternative, ...]:
    """The plans for a kind of device.

    Raises:
        DeviceError: if there are none; ``label`` names the file.
    """
    chosen = tuple(each for each in found if each.device == device)
    if not chosen:
        have = ", ".join(dict.fromkeys(each.device for each in found))
        raise DeviceError(f"{label} has no plan for the device '{device}', it has plans for {have}")
    return chosen


def signatures_of(found: Sequence[Alternative], entry: str) -> tuple[Signature, ...]:
    """What the plans take and give: one signature for each shape of the inputs, the first plan's first."""
    return tuple({each.shapes: Signature(entry, each.inputs, each.outputs) for each in found}.values())


def fitting(signatures: Sequence[Signature], shapes: Mapping[str, tuple[int, ...]]) -> Signature:
    """The signature with these shapes of the inputs, by name; if there is only one, that, which is checked later.

    Raises:
        UsageError: if there are several, and none has them.
    """
    if len(signatures) == 1:
        return signatures[0]
    for each in signatures:
        if all(shapes.get(spec.name, spec.shape) == spec.shape for spec in each.inputs):
            return each
    names = [spec.name for spec in signatures[0].inputs if _varies(signatures, spec.name)]
    given = " ".join(f"{name}={_text(shapes[name])}" for name in names if name in shapes)
    have = [" ".join(f"{spec.name}={_text(spec.shape)}" for spec in _named(each, names)) for each in signatures]
    more = f" and {len(have) - _SHOWN} more" if len(have) > _SHOWN else ""
    raise UsageError(
        f"the module has no plan for inputs of the shapes {given}; it has plans for {'; '.join(have[:_SHOWN])}{more}"
    )


def _varies(signatures: Sequence[Signature], name: str) -> bool:
    return len({spec.shape for each in signatures for spec in each.inputs if spec.name == name}) > 1


def _named(signature: Signature, names: Sequence[str]) -> list[TensorSpec]:
    return [spec for spec in signature.inputs if spec.name in names]


def _text(shape: Sequence[int | None]) -> str:
    return ",".join(map(str, shape))
