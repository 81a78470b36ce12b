"""Depthwise convolution and pooling by our own kernel, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Window, window_of
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.costs import WindowCost
from sartor.codegen.kernels.windows.window import window_sliding, window_tilings
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class SlidingWindow(ImageRoutine[Window]):
    """A window over vectors of channels, with padding left out and elementwise ops fused.

    Parameters: those of ``Tiling``.
    """

    name: str = "window"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, family="window", sizes=Tiling.names(), estimate=WindowCost())

    @property
    def devices(self) -> tuple[str, ...]:
        return self.in_subgroups

    def match(self, task: Task) -> Window | Rejected:
        return window_of(task) or Rejected("neither a depthwise convolution nor a pooling in two dimensions")

    def channels(self, match: Window) -> tuple[int, ...]:
        return (match.result.shape[1],)

    def tilings(self, match: Window, machine: Machine) -> list[Tiling]:
        return window_tilings(match, machine)

    def parts(self, images: ImageLayer, match: Window, parameters: Parameters) -> KernelParts:
        tiling = Tiling.of(parameters)
        if tiling.lines != 1:
            raise RejectionError(f"a window slides along one row of the result at a time, not {tiling.lines}")
        return KernelParts(window_sliding(images, match, tiling))
