"""The record, in a manifest, of the plans that a file has for several CPU levels, devices and shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.json_fields import Fields, checked, listed, record, text
from sartor.runtime.segments.record import check_part

LEVEL_FUNCTION = "$level"
"""What follows the entry's name in that of the function that gives the number of the CPU level that was chosen."""

_PLAN = re.compile(r"plan[0-9]+_")


def plan_prefix(number: int) -> str:
    """With which the names of the code of a plan begin, which is the so many of its module."""
    return f"plan{number}_"


def without_plan(name: str) -> str:
    """The name of code without that of its plan. Plans of a module share equal code, which has the name of one plan."""
    match = _PLAN.match(name)
    return name[match.end() :] if match else name


@dataclass(frozen=True)
class Alternative:
    """A plan of a file that has several.

    Attributes:
        device: kind of the device that runs it.
        level: target level of its code. The levels of a device are listed the best first.
        inputs: with the shapes that it was made for.
        outputs: likewise.
        needs: CPU features, by LLVM's names, that a machine must have for the level to be chosen.
        features: CPU extensions that its code needs and an operating system may withhold.
        part: name of the module in the file, which is itself a .vmfb; empty for the file's first module.
        plan: as JSON data, which is not checked here; empty for that of the manifest.
        network: likewise, what it computes.
    """

    device: str
    level: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    needs: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    part: str = ""
    plan: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(content: object, where: str = "") -> Alternative:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a plan.
        """
        fields = Fields(content, where)
        alternative = Alternative(
            device=fields.take("device", text),
            level=fields.take("level", text),
            inputs=fields.take("inputs", listed(TensorSpec.read)),
            outputs=fields.take("outputs", listed(TensorSpec.read)),
            needs=fields.take("needs", listed(text), ()),
            features=fields.take("features", listed(text), ()),
            part=fields.take("part", checked(text, check_part), ""),
            plan=fields.take("plan", record, {}),
            network=fields.take("network", record, {}),
        )
        fields.end()
        return alternative

    @property
    def shapes(self) -> str:
        """The inputs' shapes in words, with question marks for sizes that callers choose."""
        sizes = {spec.name: ("?" if size is None else str(size) for size in spec.shape) for spec in self.inputs}
        return " ".join(f"{name}={','.join(shape)}" for name, shape in sizes.items())


def check_alternatives(
    alternatives: Sequence[Alternative],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    devices: Sequence[str],
) -> None:
    """Make sure that plans are of the manifest's inputs, outputs and devices.

    Raises:
        ValueError: if not, or if two are for the same level and shapes; the message says which.
    """
    known = {(alternative.device, alternative.level, alternative.shapes) for alternative in alternatives}
    if len(known) < len(alternatives):
        raise ValueError("two plans are for the same level and the same shapes")
    for alternative in alternatives:
        if alternative.device not in devices:
            raise ValueError(
                f"a plan is for the device '{alternative.device}', which is not among the module's devices"
            )
        for own, specs in ((alternative.inputs, inputs), (alternative.outputs, outputs)):
            if [spec.name for spec in own] != [spec.name for spec in specs]:
                raise ValueError(f"a plan for '{alternative.level}' takes or gives other tensors than the module")
