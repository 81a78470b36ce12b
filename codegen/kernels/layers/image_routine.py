"""The base of routines over images: the layout, the machine, and how a layer becomes a kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sartor.codegen.analysis.convolution import Convolution, convolution_of
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.layouts import CHANNELS_LAST, PLAIN_IMAGE
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts
from sartor.codegen.kernels.layers.kernel_routine import StoringKernel
from sartor.codegen.kernels.loops.tiling import Sizes
from sartor.codegen.mlir.kernel_machine import CPU_ONLY, devices_storing, kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

Match = TypeVar("Match")


@dataclass(frozen=True)
class ImageRoutine(StoringKernel, Generic[Match]):
    """A kernel over images in NHWC or in blocks of channels.

    Attributes:
        blocked: whether images lie in blocks of channels.
        lanes: elements of a vector, and channels of a block; None for as many as a register of the CPU holds.
    """

    blocked: bool = False
    lanes: int | None = None

    @property
    def traits(self) -> Traits:
        """The traits that follow from layout and element types."""
        return replace(super().traits, blocked=self.blocked)

    @property
    def in_subgroups(self) -> tuple[str, ...]:
        """Devices of a kernel whose vectors may be subgroups of a GPU; blocks of channels gain nothing there."""
        return CPU_ONLY if self.blocked else devices_storing(self.storage)

    @property
    def in_planes(self) -> bool:
        """Whether the result is stored in ONNX's layout, whatever that of the images."""
        return False

    def layout(self, machine: Machine) -> str:
        """The layout of images."""
        return f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST

    def machine(self, task: Task, target: Target, storage: str | None = None) -> Machine | Rejected:
        """The machine with vectors of the routine's width; Rejected if the kernel does not support layer or target."""
        offered = kernel_machine(task, target, storage, self.devices)
        return offered if self.lanes is None or isinstance(offered, Rejected) else offered.with_lanes(self.lanes)

    @abstractmethod
    def match(self, task: Task) -> Match | Rejected:
        """What the kernel computes for a task, or why it does not apply."""

    @abstractmethod
    def channels(self, match: Match) -> tuple[int, ...]:
        """Numbers of channels that have to be divisible into blocks."""

    @abstractmethod
    def tilings(self, match: Match, machine: Machine) -> Sequence[Sizes] | Rejected:
        """Sizes worth trying, best guess first; Rejected with the reason if there are none."""

    @abstractmethod
    def parts(self, images: ImageLayer, match: Match, parameters: Parameters) -> KernelParts:
        """The kernel.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        match, machine = required(self.match(task)), required(self.machine(task, target, self.storage))
        if self.blocked and any(channel % machine.lanes for channel in self.channels(match)):
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        tilings = self.tilings(match, machine)
        return tilings if isinstance(tilings, Rejected) else [sizes.parameters() for sizes in tilings]

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        match, machine = required(self.match(task)), required(self.machine(task, target))
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            images = ImageLayer.of(rewrite, self.layout(machine), machine.lanes, in_planes=self.in_planes)
            parts = self.parts(images, match, parameters)
        inputs = tuple(
            _schema(tensor, target.device, layout, self.storage)
            for tensor, layout in zip(task.inputs, images.inputs, strict=True)
        )
        output = Schema(target.device, self.output or self.storage or task.results[0].dtype, images.output)
        return KernelLayer.of(task, rewrite, inputs, output, parts, self.needs)


@dataclass(frozen=True)
class ConvolutionRoutine(ImageRoutine[Convolution]):
    """A kernel of convolutions that multiplies pixels by filters, without a transform."""

    def match(self, task: Task) -> Convolution | Rejected:
        convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
        return convolution or Rejected("not a two-dimensional convolution without groups")

    def channels(self, match: Convolution) -> tuple[int, ...]:
        return (match.result.shape[1],)


def _schema(activation: TensorType, device: str, layout: str, storage: str | None) -> Schema:
    """The schema of an activation; one that is read by planes is a network's input, which keeps its type."""
    comes_as_it_is = layout == PLAIN_IMAGE and activation.shape[1] > 1
    dtype = activation.dtype if comes_as_it_is or storage is None else storage
    return Schema(device, dtype, layout)
