"""Depthwise and 1x1 convolution as one kernel, in NHWC or in blocks of channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.windows.separable import BandSizes, Separable, band_sizes, separable_layer, separable_of
from sartor.codegen.mlir.machine import Machine, kernel_machine


@dataclass(frozen=True)
class FusedSeparable:
    """A separable convolution (Chollet, Xception, 2017) band by band, everything elementwise fused.

    Parameters: those of ``BandSizes``.

    Attributes:
        name: the algorithm in descriptors.
        blocked: whether images lie in blocks of channels.
    """

    name: str = "separable"
    blocked: bool = False

    @property
    def traits(self) -> Traits:
        return Traits("separable", blocked=self.blocked, fuses=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        try:
            subject, machine = _subject(task, target)
        except ValueError as error:
            return Rejected(str(error))
        channels = subject.window.result.shape[1], subject.convolution.result.shape[1]
        if self.blocked and any(each % machine.lanes for each in channels):
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        found = [each.parameters() for each in band_sizes(subject, machine)]
        return found or Rejected("not even one row fits the scratch")

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            ValueError: if there is none.
        """
        subject, machine = _subject(task, target)
        layout = f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST
        return separable_layer(task, subject, BandSizes.of(parameters), layout, machine.lanes, target.device)


def _subject(task: Task, target: Target) -> tuple[Separable, Machine]:
    """What is computed, and where.

    Raises:
        ValueError: if the routine does not apply.
    """
    subject, machine = separable_of(task), kernel_machine(task, target)
    if subject is None:
        raise ValueError("no depthwise convolution with an unpadded 1x1 convolution after it")
    if isinstance(machine, Rejected):
        raise ValueError(machine.reason)
    return subject, machine
