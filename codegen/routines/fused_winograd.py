"""Winograd's minimal filtering for 3x3 convolutions by one kernel of our own (Lavin and Gray, 2016)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sartor.codegen.draft import Draft
from sartor.codegen.kernels.convolution import ImageLayer
from sartor.codegen.kernels.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.winograd import WinogradTiling
from sartor.codegen.kernels.winograd_code import WinogradCode
from sartor.codegen.kernels.winograd_layer import winograd_form, winograd_tilings, workspace_type
from sartor.codegen.layer import Task
from sartor.codegen.layouts import CHANNELS_LAST
from sartor.codegen.machine import kernel_machine
from sartor.codegen.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.routines.winograd import applicable, promising_tiles
from sartor.codegen.target import Target


@dataclass(frozen=True)
class FusedWinograd:
    """Winograd's method in the cache: blocks of tiles are encoded, multiplied and decoded by one dispatch.

    Parameters: ``tile``, output pixels per side; ``columns`` and ``vectors`` of the register tile; ``block``, tiles
    taken at a time; ``groups`` and ``panels`` of workgroups; ``unroll``.
    """

    name: str = "fused_winograd"
    blocked: bool = False

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        convolution = applicable(task)
        if isinstance(convolution, Rejected):
            return convolution
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        if self.blocked and any(each % machine.lanes for each in convolution.filter.shape[:2]):
            return Rejected(f"its channels do not divide into vectors of {machine.lanes}")
        tiles = promising_tiles(convolution)
        if isinstance(tiles, Rejected):
            return tiles
        return [
            asdict(each)
            for rank, tile in enumerate(tiles)
            for each in winograd_tilings(convolution, tile, machine, is_best=rank == 0)
        ]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a 3x3 convolution.

        Raises:
            ValueError: if there is none.
        """
        convolution, machine = applicable(task), kernel_machine(task, target)
        if isinstance(convolution, Rejected) or isinstance(machine, Rejected):
            raise ValueError("not a 3x3 convolution for kernels")
        tiling = WinogradTiling(**{name: integer(value) for name, value in parameters.items()})
        layout = f"nchw{machine.lanes}c" if self.blocked else CHANNELS_LAST
        draft = Draft.plain(task)
        with draft.module.context:
            images = ImageLayer.of(draft, layout, machine.lanes)
            form = winograd_form(images, convolution, tiling)
        return KernelLayer(draft, images.inputs, images.output, WinogradCode(form), workspace_type(form))
