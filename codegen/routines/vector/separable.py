"""A depthwise and a 1x1 convolution as one kernel, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.windows.costs import SeparableCost
from sartor.codegen.kernels.windows.separable import Separable, StripSizes, separable_layer, separable_of, strip_sizes
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class FusedSeparable:
    """A separable convolution (Chollet, Xception, 2017) by row strips, with elementwise ops fused.

    Parameters: those of ``StripSizes``.

    Attributes:
        name: the algorithm in descriptors.
        blocked: whether images lie in blocks of channels.
    """

    name: str = "separable"
    blocked: bool = False

    @property
    def traits(self) -> Traits:
        return Traits("separable", blocked=self.blocked, fuses=True, sizes=StripSizes.names(), estimate=SeparableCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        match, machine = _match(task, target)
        channels = match.window.result.shape[1], match.convolution.result.shape[1]
        if self.blocked and any(channel % machine.lanes for channel in channels):
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        offered = [strip_size.parameters() for strip_size in strip_sizes(match, machine)]
        return offered or Rejected("not even one row fits the scratch")

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        match, machine = _match(task, target)
        layout = f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST
        return separable_layer(task, match, StripSizes.of(parameters), layout, machine.lanes, target.device)


def _match(task: Task, target: Target) -> tuple[Separable, Machine]:
    """The two stages of a task, and the CPU.

    Raises:
        RejectionError: if the routine does not apply.
    """
    match, machine = separable_of(task), kernel_machine(task, target)
    if match is None:
        raise RejectionError("no depthwise convolution with an unpadded 1x1 convolution after it")
    if isinstance(machine, Rejected):
        raise RejectionError(machine.reason)
    return match, machine
