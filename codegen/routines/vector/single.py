"""Convolution to one output channel by our own kernel, over images in any layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import PLAIN_IMAGE
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Sizes, Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ConvolutionRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.single.convolution import plane_tilings, single_channel
from sartor.codegen.kernels.single.plane import PlaneTiling
from sartor.codegen.mlir.kernel_machine import CPU
from sartor.codegen.mlir.machine import Machine

# A vector of pixels is taken from as many loaded vectors as the stride.
_MOST_STRIDE = 4


@dataclass(frozen=True)
class SingleCost:
    """The cost of reading an image once for each tap, a vector for each multiply-add."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        taps = sizes["kernel_height"] * sizes["kernel_width"] * sizes["depth"]
        vectors = -(-sizes["rows"] * sizes["columns"] // core.lanes)
        return sizes["batch"] * vectors * taps / min(core.loads, core.multiplies)


@dataclass(frozen=True)
class SingleChannel(ConvolutionRoutine):
    """One output channel, with padding left out and elementwise ops fused.

    Input channels are in the lanes of a vector, or neighbouring pixels where the image lies in planes.

    Parameters: those of ``PlaneTiling``.

    Attributes:
        by_planes: whether the image lies in planes.
    """

    name: str = "single"
    by_planes: bool = False

    @property
    def traits(self) -> Traits:
        return replace(super().traits, family="single", sizes=PlaneTiling.names(), estimate=SingleCost())

    @property
    def devices(self) -> tuple[str, ...]:
        return CPU

    @property
    def single(self) -> bool:
        return True

    def layout(self, machine: Machine) -> str:
        return PLAIN_IMAGE if self.by_planes else super().layout(machine)

    def match(self, task: Task) -> Convolution | Rejected:
        found = super().match(task)
        if isinstance(found, Rejected):
            return found
        if found.result.shape[1] != 1:
            return Rejected("it has more than one output channel")
        if self.by_planes and found.strides[1] > _MOST_STRIDE:
            return Rejected(f"its stride is more than {_MOST_STRIDE}")
        if found.filter.shape[1] == 1 and not self.by_planes:
            return Rejected("an image of one channel lies in a plane")
        return found

    def channels(self, match: Convolution) -> tuple[int, ...]:
        return (match.filter.shape[1],)

    def tilings(self, match: Convolution, machine: Machine) -> list[PlaneTiling]:
        return plane_tilings(match, machine, by_planes=self.by_planes)

    def parts(self, images: ImageLayer, match: Convolution, parameters: Parameters) -> KernelParts:
        code = single_channel(images, match, PlaneTiling.of(parameters), by_planes=self.by_planes)
        return KernelParts(code, factor=code.image.memory)
