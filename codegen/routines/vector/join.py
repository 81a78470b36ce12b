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
from sartor.codegen.kernels.windows.concatenation import Concatenation, concatenation_of, joining, joining_tilings
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

    def subject(self, task: Task) -> Concatenation | Rejected:
        return concatenation_of(task) or Rejected("no concatenation of images along their channels")

    def channels(self, subject: Concatenation) -> tuple[int, ...]:
        return subject.parts

    def tilings(self, subject: Concatenation, machine: Machine) -> list[Tiling]:
        return joining_tilings(subject, machine)

    def code(
        self, images: ImageLayer, subject: Concatenation, parameters: Parameters
    ) -> tuple[KernelCode, TensorType | None]:
        return joining(images, Tiling.of(parameters)), None
