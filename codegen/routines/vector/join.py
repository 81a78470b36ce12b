"""Concatenation of images or slices of them by our own kernel, in NHWC or in blocks of channels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.concatenation import (
    Concatenation,
    concatenation_kernel,
    concatenation_of,
    concatenation_tilings,
)
from sartor.codegen.kernels.windows.costs import CopyCost
from sartor.codegen.mlir.kernel_machine import CPU_ONLY
from sartor.codegen.mlir.machine import Machine

# A tile has at least one pixel of the image, all of whose repetitions are written out.
_MOST_REPEATS = 16


@dataclass(frozen=True)
class Join(ImageRoutine[Concatenation]):
    """Images are copied row by row to their channels of the result, with elementwise ops fused.

    Parameters: those of ``Tiling``.
    """

    name: str = "join"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, slowdown=LOWERED.slowdown, sizes=Tiling.names(), estimate=CopyCost())

    @property
    def devices(self) -> tuple[str, ...]:
        return self.in_subgroups

    def match(self, task: Task) -> Concatenation | Rejected:
        concatenation = _filled(task)
        if concatenation is None or concatenation.has_slices or concatenation.repeats:
            return Rejected("no concatenation of images along their channels")
        return concatenation

    def channels(self, match: Concatenation) -> tuple[int, ...]:
        return match.parts

    def tilings(self, match: Concatenation, machine: Machine) -> list[Tiling]:
        return concatenation_tilings(match, machine)

    def parts(self, images: ImageLayer, match: Concatenation, parameters: Parameters) -> KernelParts:
        return KernelParts(concatenation_kernel(images, Tiling.of(parameters)))


@dataclass(frozen=True)
class JoinSlices(Join):
    """Slices of images, or some of the images that are joined, are read where they lie.

    Parameters: those of ``Tiling``.
    """

    name: str = "join_slices"

    @property
    def devices(self) -> tuple[str, ...]:
        return CPU_ONLY

    def match(self, task: Task) -> Concatenation | Rejected:
        concatenation = _filled(task)
        return (
            concatenation
            if concatenation and concatenation.has_slices and not concatenation.repeats
            else Rejected("no slice of an image")
        )


@dataclass(frozen=True)
class JoinEnlarged(Join):
    """Images enlarged to the nearest pixels, or some of the images that are joined, whose pixels are stored repeatedly.

    Parameters: those of ``Tiling``.
    """

    name: str = "join_enlarged"

    @property
    def devices(self) -> tuple[str, ...]:
        return CPU_ONLY

    def match(self, task: Task) -> Concatenation | Rejected:
        concatenation = _filled(task)
        if concatenation is None or not concatenation.repeats:
            return Rejected("no image enlarged by whole factors")
        if math.lcm(*concatenation.repeats) > _MOST_REPEATS:
            return Rejected(f"pixels are repeated more than {_MOST_REPEATS} times")
        return concatenation


def _filled(task: Task) -> Concatenation | None:
    """The concatenation, if all its parts have elements: of none there is nothing to divide into tiles."""
    concatenation = concatenation_of(task)
    return concatenation if concatenation and 0 not in (*concatenation.result.shape, *concatenation.parts) else None
