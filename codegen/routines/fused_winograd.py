"""Winograd's minimal filtering by one kernel of our own (Lavin and Gray, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.convolution import Convolution
from sartor.codegen.kernels.image_layer import ImageLayer
from sartor.codegen.kernels.image_routine import ImageRoutine
from sartor.codegen.kernels.kernel_layer import KernelCode
from sartor.codegen.kernels.winograd import WinogradTiling
from sartor.codegen.kernels.winograd_code import WinogradCode
from sartor.codegen.kernels.winograd_layer import winograd_form, winograd_tilings, workspace_type
from sartor.codegen.layer import Task, TensorType
from sartor.codegen.machine import Machine
from sartor.codegen.routine import Parameters, Rejected
from sartor.codegen.winograd_tiles import applicable, promising_tiles

_MOST_CHOICES = 2


@dataclass(frozen=True)
class FusedWinograd(ImageRoutine[Convolution]):
    """Winograd's method in the cache: blocks of tiles are encoded, multiplied and decoded by one dispatch.

    Parameters: ``height`` and ``width`` of the tiles of the result; ``columns`` and ``vectors`` of the register tile;
    ``block``, tiles taken at a time; ``groups`` and ``panels`` of workgroups; ``unroll``.
    """

    name: str = "fused_winograd"

    def subject(self, task: Task) -> Convolution | Rejected:
        return applicable(task)

    def channels(self, subject: Convolution) -> tuple[int, ...]:
        return subject.filter.shape[:2]

    def tilings(self, subject: Convolution, machine: Machine) -> list[WinogradTiling] | Rejected:
        tiles = promising_tiles(subject)
        if isinstance(tiles, Rejected):
            return tiles
        return [
            each
            for rank, tile in enumerate(tiles[:_MOST_CHOICES])
            for each in winograd_tilings(subject, tile, machine, is_best=rank == 0)
        ]

    def code(
        self, images: ImageLayer, subject: Convolution, parameters: Parameters
    ) -> tuple[KernelCode, TensorType | None]:
        form = winograd_form(images, subject, WinogradTiling.of(parameters))
        return WinogradCode(form), workspace_type(form)
