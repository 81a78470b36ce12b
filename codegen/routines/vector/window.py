"""Depthwise convolution and pooling by our own kernel, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Window, window_of
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.isa.word_pairs import WIDE_WORD_PAIRS, WordPairElement
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.converted_rows import ConvertedRows
from sartor.codegen.kernels.windows.costs import ConvertedCost, PairedCost, WindowCost
from sartor.codegen.kernels.windows.sliding import Sliding
from sartor.codegen.kernels.windows.window import paired_rows, paired_tilings, window_sliding, window_tilings
from sartor.codegen.mlir.kernel_machine import CPU_ONLY
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

    def tilings(self, match: Window, machine: Machine) -> list[Tiling] | Rejected:
        return window_tilings(match, machine)

    def parts(self, images: ImageLayer, match: Window, parameters: Parameters) -> KernelParts:
        return KernelParts(self.sliding(images, match, parameters))

    def sliding(self, images: ImageLayer, match: Window, parameters: Parameters) -> Sliding:
        """The window of a layer.

        Raises:
            RejectionError: if the layer cannot be computed so.
        """
        return window_sliding(images, match, _of_one_line(parameters))


def _of_one_line(parameters: Parameters) -> Tiling:
    """The sizes of tiles.

    Raises:
        RejectionError: if tiles have several lines.
    """
    tiling = Tiling.of(parameters)
    if tiling.lines != 1:
        raise RejectionError(f"a window slides along one row of the result at a time, not {tiling.lines}")
    return tiling


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
        return CPU_ONLY

    def match(self, task: Task) -> Window | Rejected:
        window = window_of(task)
        if window is None or not window.is_weighted:
            return Rejected("not a depthwise convolution in two dimensions")
        if (*window.strides, *window.dilations) != (1,) * 4:
            return Rejected("it skips rows or pixels, so hardly any is converted twice")
        return window if window.kernel[0] > 1 else Rejected("its windows have a single row")

    def tilings(self, match: Window, machine: Machine) -> list[Tiling] | Rejected:
        # Workgroups of a few rows would convert those around them too.
        return sorted(window_tilings(match, machine), key=lambda tiling: tiling.row_groups)

    def parts(self, images: ImageLayer, match: Window, parameters: Parameters) -> KernelParts:
        return KernelParts(ConvertedRows.of(self.sliding(images, match, parameters)))


@dataclass(frozen=True)
class PairedWindow(SlidingWindow):
    """A depthwise convolution of 8 bits by pairs of 16-bit numbers.

    Parameters: those of ``Tiling``.

    Attributes:
        element: the instruction.
    """

    storage: str | None = QUANTISED
    element: WordPairElement = WIDE_WORD_PAIRS

    @property
    def traits(self) -> Traits:
        window = super().traits
        return replace(window, family="window_word_pairs", instruction=self.element, estimate=PairedCost(), wide=window)

    @property
    def devices(self) -> tuple[str, ...]:
        return CPU_ONLY

    def match(self, task: Task) -> Window | Rejected:
        window = window_of(task)
        if window is None or not window.is_weighted:
            return Rejected("not a depthwise convolution in two dimensions")
        return window if window.kernel[1] > 1 else Rejected("its windows have a single column")

    def tilings(self, match: Window, machine: Machine) -> list[Tiling] | Rejected:
        return self.element.refusal(machine) or paired_tilings(match, machine)

    def parts(self, images: ImageLayer, match: Window, parameters: Parameters) -> KernelParts:
        return KernelParts(paired_rows(images, match, _of_one_line(parameters), self.element))
