"""Concatenation of images along their channels by a kernel of our own, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.concatenation import (
    Concatenation,
    concatenation_kernel,
    concatenation_of,
    concatenation_tilings,
)
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class Join(ImageRoutine[Concatenation]):
    """Images copied row by row to where their channels belong, everything elementwise fused.

    Parameters: ``columns`` and ``vectors`` of the register tile, ``row_groups`` that share out the rows.
    """

    name: str = "join"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, slowdown=LOWERED.slowdown)

    def match(self, task: Task) -> Concatenation | Rejected:
        return concatenation_of(task) or Rejected("no concatenation of images along their channels")

    def channels(self, match: Concatenation) -> tuple[int, ...]:
        return match.parts

    def tilings(self, match: Concatenation, machine: Machine) -> list[Tiling]:
        return concatenation_tilings(match, machine)

    def code(
        self, images: ImageLayer, match: Concatenation, parameters: Parameters
    ) -> tuple[KernelCode, TensorType | None]:
        return concatenation_kernel(images, Tiling.of(parameters)), None
