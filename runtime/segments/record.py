"""The record of a network's segments in its manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.json_fields import Fields, checked, listed, text


def check_part(name: str) -> None:
    """Raise ValueError if the name of a part could lead out of the file."""
    if any(separator in name for separator in "/\\\0"):
        raise ValueError(f"'{name}' is not the name of a part")


@dataclass(frozen=True)
class Segment:
    """A part of a network that one device computes, as one exported function.

    Attributes:
        entry: the function.
        device: kind of the device.
        inputs: the values that it takes, by name: inputs of the network, or outputs of earlier segments.
        outputs: the values that it gives. Those with a name of the network's outputs are these outputs.
        part: name of the module in the file, which is itself a .vmfb; empty for the file's first module, which stock
            tools run as it is.
    """

    entry: str
    device: str
    inputs: tuple[str, ...]
    outputs: tuple[TensorSpec, ...]
    part: str = ""

    def __post_init__(self) -> None:
        """Check the part.

        Raises:
            ValueError: if it may lead out of the file.
        """
        check_part(self.part)

    @staticmethod
    def read(content: object, where: str = "") -> Segment:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a segment.
        """
        fields = Fields(content, where)
        entry, device = fields.take("entry", text), fields.take("device", text)
        inputs, outputs = fields.take("inputs", listed(text)), fields.take("outputs", listed(TensorSpec.read))
        part = fields.take("part", checked(text, check_part), "")
        fields.end()
        return Segment(entry, device, inputs, outputs, part)


def part_name(device: str, first: str) -> str:
    """The part of a network's file with the module of a device; empty for the first device, whose module begins it."""
    return "" if device == first else f"{device}.vmfb"


def check_order(segments: Sequence[Segment], inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Make sure that each value is there when a segment reads it.

    Args:
        segments: in the order in which they run.
        inputs: names of the network's inputs.
        outputs: names of the network's outputs.

    Raises:
        ValueError: if a value is read before it is computed, or computed twice, or never; the message names it.
    """
    known = set(inputs)
    for segment in segments:
        if missing := [name for name in segment.inputs if name not in known]:
            raise ValueError(f"segment '{segment.entry}' reads '{missing[0]}', which no earlier segment computes")
        for spec in segment.outputs:
            if spec.name in known:
                raise ValueError(f"segment '{segment.entry}' computes '{spec.name}', which is there already")
            known.add(spec.name)
    if missing := [name for name in outputs if name not in known]:
        raise ValueError(f"no segment computes the output '{missing[0]}'")
