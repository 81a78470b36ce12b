"""Depthwise convolutions and poolings of images of any height and width on a CPU, by one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import OpenedTask, Task
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import OpenWindowCost, runs_of_pixel
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_window import OpenWindow
from sartor.codegen.kernels.open_sizes.window_form import WindowForm, window_form
from sartor.codegen.kernels.windows.separable import wirings
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Places of a register tile, and its vectors of channels.
_TILES = ((8, 1), (4, 2), (4, 4), (12, 1), (6, 2), (4, 1))
_STAGES = 2


@dataclass(frozen=True)
class OpenWindowKernel(OpenRoutine):
    """Windows over vectors of channels, with padding left out and elementwise ops fused.

    Parameters: ``columns`` and ``vectors`` of a register tile, and ``groups``, workgroups that partition the rows.

    Attributes:
        name: the algorithm in descriptors.
        fuses: whether it reads the image where another layer pads it or gathers patches of it.
    """

    name: str = "open_window"
    fuses: bool = False

    @property
    def traits(self) -> Traits:
        sizes = ("columns", "vectors", "groups")
        return Traits(fuses=self.fuses, opens=True, sizes=sizes, estimate=OpenWindowCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.opened is None or len(task.results[0].shape) != IMAGE_RANK:
            return Rejected("no images of open sizes")
        machine = required(kernel_machine(task, target))
        check_windows(task, machine.lanes)
        batch, high, *_ = task.results[0].shape
        groups = many_workgroups(batch * high, machine.threads)
        return [
            {"columns": columns, "vectors": wide, "groups": groups} for columns, wide in window_tiles(task, machine)
        ]

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        rewrite, code = open_window(task, opened, parameters, machine)
        return [rewrite], code


def open_window(task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine) -> tuple[Rewrite, OpenWindow]:
    """The code of windows, alone or behind their patches or their padding, and the rewrite that its operations are of.

    Raises:
        RejectionError: if there is none.
    """
    form, rewrite = _form(task, machine.lanes)
    other, _ = _form(opened.twin, machine.lanes)
    form = form.opened(other, opened.fit)
    image, wiring = 0, tuple(range(len(task.inputs) + len(task.weights) + 1))
    if task.stages:
        ((image, *_), wiring) = wirings(task)
    columns, vectors, groups = (integer(parameters[name]) for name in ("columns", "vectors", "groups"))
    (batch, *_) = task.results[0].dims or task.results[0].shape
    return rewrite, OpenWindow(form, batch, image, wiring, columns, vectors, machine.lanes, groups)


def check_windows(task: Task, lanes: int) -> None:
    """Make sure that a task is windows over each channel.

    Raises:
        RejectionError: if it is not.
    """
    _form(task, lanes)


def window_tiles(task: Task, machine: Machine) -> list[tuple[int, int]]:
    """Places of a register tile, and its vectors of channels, best guess first: those that read longer runs."""
    vectors = -(-task.results[0].shape[-1] // machine.lanes)
    fitting = [tile for tile in _TILES if tile[1] <= vectors and math.prod(tile) <= machine.accumulators]
    return sorted(fitting, key=lambda tile: runs_of_pixel(vectors, tile[1]))


def _form(task: Task, lanes: int) -> tuple[WindowForm, Rewrite]:
    if len(task.stages) not in (0, _STAGES) or len(task.results) != 1:
        raise RejectionError("not one window")
    rewrite = Rewrite.plain(task.stages[-1].task if task.stages else task)
    with rewrite.module.context:
        return window_form(task, rewrite, lanes), rewrite
