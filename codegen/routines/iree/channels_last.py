"""Images in NHWC, filters repacked to HWIO at compile time; IREE generates the code."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.mlir.rewriting.convert import Converted, convert_images, has_images


@dataclass(frozen=True)
class ChannelsLast:
    """Layout NHWC for layers on images, of every kind that tolerates it."""

    name: str = "nhwc"

    @property
    def traits(self) -> Traits:
        return LOWERED

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is LayerKind.FIXED or not has_images(task):
            return Rejected("there is no image whose layout could change")
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        converted = convert_images(task, CHANNELS_LAST)
        return converted.implementation(target.device) if isinstance(converted, Converted) else converted
