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
from sartor.codegen.kernels.windows.converted_rows import ConvertedRows
from sartor.codegen.kernels.windows.costs import ConvertedCost, WindowCost
from sartor.codegen.kernels.windows.sliding import Sliding
from sartor.codegen.kernels.windows.window import window_sliding, window_tilings
from sartor.codegen.mlir.kernel_machine import CPU
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
        return KernelParts(self.sliding(images, match, parameters))

    def sliding(self, images: ImageLayer, match: Window, parameters: Parameters) -> Sliding:
        """The window of a layer.

        Raises:
            RejectionError: if the layer cannot be computed so.
        """
        tiling = Tiling.of(parameters)
        if tiling.lines != 1:
            raise RejectionError(f"a window slides along one row of the result at a time, not {tiling.lines}")
        return window_sliding(images, match, tiling)


@dataclass(frozen=True)
class ConvertedWindow(SlidingWindow):
    """A depthwise convolution of 8 bits, each row of whose image becomes f32 once.

    Parameters: those of ``Tiling``.
    """

    name: str = "converted_window"

    @property
    def traits(self) -> Traits:
        window = super().traits
        return replace(window, estimate=ConvertedCost(), wide=window)

    @property
    def devices(self) -> tuple[str, ...]:
        return CPU

    def match(self, task: Task) -> Window | Rejected:
        found = window_of(task)
        if found is None or not found.is_weighted:
            return Rejected("not a depthwise convolution in two dimensions")
        if (*found.strides, *found.dilations) != (1,) * 4:
            return Rejected("it skips rows or pixels, so hardly any is converted twice")
        return found if found.kernel[0] > 1 else Rejected("its windows have a single row")

    def tilings(self, match: Window, machine: Machine) -> list[Tiling]:
        # Workgroups of a few rows would convert those around them too.
        return sorted(super().tilings(match, machine), key=lambda tiling: tiling.row_groups)

    def parts(self, images: ImageLayer, match: Window, parameters: Parameters) -> KernelParts:
        return KernelParts(ConvertedRows.of(self.sliding(images, match, parameters)))
