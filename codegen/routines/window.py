"""Depthwise convolution and pooling by a kernel of our own, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.convolution import window_of
from sartor.codegen.draft import Draft
from sartor.codegen.kernels.convolution import ImageLayer
from sartor.codegen.kernels.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.window import window_sliding, window_tilings
from sartor.codegen.layer import Task
from sartor.codegen.layouts import CHANNELS_LAST
from sartor.codegen.machine import kernel_machine
from sartor.codegen.routine import Implementation, Parameters, Rejected
from sartor.codegen.target import Target


@dataclass(frozen=True)
class SlidingWindow:
    """Window over vectors of channels, padding left out, everything elementwise fused.

    Parameters: ``columns`` and ``vectors`` of the register tile, ``rows`` and ``panels`` of a workgroup.
    """

    name: str = "window"
    blocked: bool = False

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        window = window_of(task)
        if window is None:
            return Rejected("neither a depthwise convolution nor a pooling in two dimensions")
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        if self.blocked and window.result.shape[1] % machine.lanes:
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        return [tiling.parameters() for tiling in window_tilings(window, machine)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a window.

        Raises:
            ValueError: if there is none.
        """
        machine, window = kernel_machine(task, target), window_of(task)
        if isinstance(machine, Rejected) or window is None:
            raise ValueError("not a window for kernels")
        layout = f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST
        draft = Draft.plain(task)
        with draft.module.context:
            images = ImageLayer.of(draft, layout, machine.lanes)
            code = window_sliding(images, window, Tiling.of(parameters))
        return KernelLayer(draft, images.inputs, images.output, code)
