"""Patches of images of any height and width on a CPU, by a kernel of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, OpenedTask, Task
from sartor.codegen.ir.sizes.dims import count_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import OpenPatchesCost
from sartor.codegen.kernels.open_sizes.open_patches import OpenPatches
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.patches import patches_of
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

_PLACE_RANK = 3


@dataclass(frozen=True)
class OpenPatchesKernel(OpenRoutine):
    """Copies what the windows of an image of any size read, by whole rows of a window.

    Parameters: ``groups``, workgroups that partition the patches.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_patches"

    @property
    def traits(self) -> Traits:
        return Traits(opens=True, sizes=("groups",), estimate=OpenPatchesCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.opened is None or task.kind is not LayerKind.FIXED or task.weights:
            return Rejected("no patches of images of open sizes")
        machine = required(kernel_machine(task, target))
        patches_of(task)
        places = math.prod(task.results[0].shape[:_PLACE_RANK])
        return [{"groups": many_workgroups(places, machine.threads)}]

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        patches = patches_of(task).opened(patches_of(opened.twin), opened.fit)
        result = task.results[0]
        places = count_of((result.dims or result.shape)[:_PLACE_RANK])
        return [Rewrite.plain(task)], OpenPatches(patches, places, machine.lanes, integer(parameters["groups"]))
