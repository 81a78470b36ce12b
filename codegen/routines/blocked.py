"""Channels in blocks, NCHW[x]c with filters KCRS[x]c[y]k (NeoCPU, section III-A), lowered by IREE."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.convert import Converted, convert_images, has_images
from sartor.codegen.layer import LayerKind, Task
from sartor.codegen.routine import Implementation, Parameters, Rejected
from sartor.codegen.target import Target

_BLOCKS = (16,)


@dataclass(frozen=True)
class Blocked:
    """Layout NCHW[x]c for layers on images whose channels divide into blocks."""

    name: str = "nchwc"

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if target.device != "cpu":
            return Rejected("blocked channels are a layout for vector registers")
        if task.kind is LayerKind.FIXED or not has_images(task):
            return Rejected("no image whose layout could change")
        return [{"block": block} for block in _BLOCKS]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        converted = convert_images(task, f"nchw{parameters['block']}c")
        return converted.implementation() if isinstance(converted, Converted) else converted
