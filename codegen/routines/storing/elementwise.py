"""Elementwise layers over images in 8 bits, as the product of a squeeze-and-excitation block, by our own kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.costs import CopyCost
from sartor.codegen.kernels.windows.elementwise import elementwise_kernel, elementwise_result, elementwise_tilings
from sartor.codegen.mlir.machine import Machine

# Instructions that widen and round a vector, beside those of the layer's own ops.
_INSTRUCTIONS = 8


@dataclass(frozen=True)
class ElementwiseImages(ImageRoutine[TensorType]):
    """Reads images, or numbers that their pixels share, in 8 bits, and rounds once at the end.

    Parameters: those of ``Tiling``.
    """

    name: str = "elementwise"
    storage: str | None = QUANTISED

    @property
    def traits(self) -> Traits:
        estimate = CopyCost(_INSTRUCTIONS)
        return replace(super().traits, slowdown=LOWERED.slowdown, sizes=Tiling.names(), estimate=estimate)

    def match(self, task: Task) -> TensorType | Rejected:
        return elementwise_result(task)

    def channels(self, match: TensorType) -> tuple[int, ...]:
        return (match.shape[1],)

    def tilings(self, match: TensorType, machine: Machine) -> list[Tiling]:
        return elementwise_tilings(match, machine)

    def parts(self, images: ImageLayer, match: TensorType, parameters: Parameters) -> KernelParts:
        return KernelParts(elementwise_kernel(images, Tiling.of(parameters)))
