"""Depthwise convolution and pooling by our own kernel, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Window, window_of
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.emit.gpu.paired_invocations import TOGETHER
from sartor.codegen.kernels.isa.pairs import DEVICES_OF_PAIRS, check_even
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

    Attributes:
        paired: whether an invocation of a GPU has two adjacent channels of each vector.
    """

    name: str = "window"
    paired: bool = False

    @property
    def traits(self) -> Traits:
        return replace(
            super().traits, family="window", sizes=Tiling.names(), estimate=WindowCost(TOGETHER if self.paired else 1)
        )

    @property
    def devices(self) -> tuple[str, ...]:
        return DEVICES_OF_PAIRS if self.paired else self.in_subgroups

    def machine(self, task: Task, target: Target, storage: str | None = None) -> Machine | Rejected:
        found = super().machine(task, target, storage)
        return found.with_lanes(TOGETHER * found.lanes) if self.paired and isinstance(found, Machine) else found

    def match(self, task: Task) -> Window | Rejected:
        return window_of(task) or Rejected("neither a depthwise convolution nor a pooling in two dimensions")

    def channels(self, match: Window) -> tuple[int, ...]:
        return (match.result.shape[1],)

    def tilings(self, match: Window, machine: Machine) -> list[Tiling] | Rejected:
        refusal = self._refusal(match.result.shape[1], machine)
        return refusal or window_tilings(match, machine)

    def _refusal(self, channels: int, machine: Machine) -> Rejected | None:
        """Why pairs, or single channels, are not offered: where pairs can be loaded, single channels need twice the
        loads."""
        if not self.paired:
            has_pairs = channels % TOGETHER == 0 and channels > machine.lanes
            gains = machine.core.pairs and self.storage is None and has_pairs
            return Rejected("pairs of channels are loaded more quickly") if gains else None
        if not machine.core.pairs:
            return Rejected("the device is not one that loads 64 bits as quickly as 32")
        return Rejected(f"{channels} channels are not pairs") if channels % TOGETHER else None

    def parts(self, images: ImageLayer, match: Window, parameters: Parameters) -> KernelParts:
        tiling = Tiling.of(parameters)
        if tiling.lines != 1:
            raise ValueError(f"a window slides along one row of the result at a time, not {tiling.lines}")
        if self.paired:
            check_even(match.result.shape[1:2])
        return KernelParts(window_sliding(images, match, tiling))
