"""The base of routines over images: the layout, the machine, and how a layer becomes a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.layouts import CHANNELS_LAST, PLAIN_IMAGE
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits, narrowest
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.kernel_layer import KernelCode, KernelLayer, build_kernel
from sartor.codegen.kernels.loops.tiling import Sizes
from sartor.codegen.mlir.machine import Machine, kernel_machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

Match = TypeVar("Match")


@dataclass(frozen=True)
class ImageRoutine(ABC, Generic[Match]):
    """A kernel over images in NHWC or in blocks of channels.

    Attributes:
        name: the algorithm in descriptors.
        blocked: whether images lie in blocks of channels.
        storage: element type that activations and the result are stored in; None for their own.
        output: element type that the result is stored in; None for that of the activations.
    """

    name: str
    blocked: bool = False
    storage: str | None = None
    output: str | None = None

    @property
    def traits(self) -> Traits:
        """The traits that follow from layout and element types."""
        converts = self.output not in (None, self.storage)
        return Traits(precision=narrowest(self.storage, self.output), blocked=self.blocked, converts=converts)

    @property
    def needs(self) -> tuple[str, ...]:
        """CPU features that the operating system has to grant, by LLVM's names."""
        return ()

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
    def code(self, images: ImageLayer, match: Match, parameters: Parameters) -> tuple[KernelCode, TensorType | None]:
        """The kernel, and the type of its workspace or None.

        Raises:
            ValueError: if there is no kernel for the layer.
        """

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        match, machine = self.match(task), kernel_machine(task, target, self.storage)
        if isinstance(match, Rejected):
            return match
        if isinstance(machine, Rejected):
            return machine
        if self.blocked and any(each % machine.lanes for each in self.channels(match)):
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        found = self.tilings(match, machine)
        return found if isinstance(found, Rejected) else [each.parameters() for each in found]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            ValueError: if there is no kernel for the layer.
        """
        match, machine = self.match(task), kernel_machine(task, target)
        if isinstance(match, Rejected):
            raise ValueError(match.reason)
        if isinstance(machine, Rejected):
            raise ValueError(machine.reason)
        layout = f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            images = ImageLayer.of(rewrite, layout, machine.lanes)
            code, workspace = self.code(images, match, parameters)
        inputs = tuple(
            _schema(each, target.device, layout, self.storage)
            for each, layout in zip(task.inputs, images.inputs, strict=True)
        )
        output = Schema(target.device, self.output or self.storage or task.results[0].dtype, images.output)
        return KernelLayer(task, (rewrite,), inputs, output, code, workspace, self.needs)


def _schema(activation: TensorType, device: str, layout: str, storage: str | None) -> Schema:
    """The schema of an activation; one that is read by planes is a network's input, which keeps its type."""
    comes_as_it_is = layout == PLAIN_IMAGE and activation.shape[1] > 1
    dtype = activation.dtype if comes_as_it_is or storage is None else storage
    return Schema(device, dtype, layout)
