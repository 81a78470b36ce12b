"""Convolution to one or a few output channels by our own kernels, over images in any layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import PLAIN_IMAGE
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ConvolutionRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.single.convolution import plane_tilings, planes_of_channels
from sartor.codegen.kernels.single.costs import ColumnCost, LaneCost
from sartor.codegen.kernels.single.plane import PlaneTiling
from sartor.codegen.mlir.kernel_machine import CPU_ONLY
from sartor.codegen.mlir.machine import Machine

# A vector of pixels is taken from as many loaded vectors as the stride.
_MOST_STRIDE = 4


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
        estimate = ColumnCost() if self.by_planes else LaneCost()
        return replace(super().traits, family="single", sizes=PlaneTiling.names(), estimate=estimate)

    @property
    def is_single(self) -> bool:
        """Whether the kernel is for one output channel, or else for several."""
        return True

    @property
    def devices(self) -> tuple[str, ...]:
        return CPU_ONLY

    @property
    def in_planes(self) -> bool:
        return True

    def layout(self, machine: Machine) -> str:
        return PLAIN_IMAGE if self.by_planes else super().layout(machine)

    def match(self, task: Task) -> Convolution | Rejected:
        convolution = super().match(task)
        if isinstance(convolution, Rejected):
            return convolution
        if (convolution.result.shape[1] == 1) != self.is_single:
            return Rejected("it has more than one output channel" if self.is_single else "it has one output channel")
        if self.by_planes and convolution.strides[1] > _MOST_STRIDE:
            return Rejected(f"its stride is more than {_MOST_STRIDE}")
        if convolution.filter.shape[1] == 1 and not self.by_planes:
            return Rejected("an image of one channel lies in a plane")
        return convolution

    def channels(self, match: Convolution) -> tuple[int, ...]:
        return (match.filter.shape[1],)

    def tilings(self, match: Convolution, machine: Machine) -> list[PlaneTiling] | Rejected:
        return plane_tilings(match, machine, by_planes=self.by_planes)

    def parts(self, images: ImageLayer, match: Convolution, parameters: Parameters) -> KernelParts:
        code = planes_of_channels(images, match, PlaneTiling.of(parameters), by_planes=self.by_planes)
        return KernelParts(code, factor=code.image.memory)


@dataclass(frozen=True)
class FewChannels(SingleChannel):
    """A few output channels, of which a vector would be half empty, stored as planes, with elementwise ops fused.

    Parameters: those of ``PlaneTiling``.
    """

    name: str = "few"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, family="few")

    @property
    def is_single(self) -> bool:
        return False

    def tilings(self, match: Convolution, machine: Machine) -> list[PlaneTiling] | Rejected:
        """Tilings worth trying, best guess first; Rejected where vectors of output channels lose less."""
        _, channels, height, width = match.result.shape
        lanes, depth = machine.lanes, match.filter.shape[1]
        if channels * 2 > lanes:
            return Rejected(f"it has more than {lanes // 2} output channels")
        if height * width * 2 < lanes:
            return Rejected("its result has fewer pixels than half a vector")
        if not self.by_planes and -(-depth // lanes) * channels >= depth:
            return Rejected("it has too few input channels for its output channels")
        return super().tilings(match, machine)
