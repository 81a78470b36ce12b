"""Patches of images of any height and width on a CPU, by a kernel of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.sizes.dims import count_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import OpenPatchesCost
from sartor.codegen.kernels.open_sizes.open_patches import OpenPatches
from sartor.codegen.kernels.open_sizes.patches import patches_of
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

_PLACE_RANK = 3


@dataclass(frozen=True)
class OpenPatchesKernel:
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
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        try:
            patches_of(task)
        except ValueError as error:
            return Rejected(str(error))
        places = math.prod(task.results[0].shape[:_PLACE_RANK])
        return [{"groups": many_workgroups(places, machine.threads)}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a task.

        Raises:
            ValueError: if there is no kernel for it.
        """
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected) or task.opened is None:
            raise ValueError("no patches of open sizes for kernels")
        patches = patches_of(task).opened(patches_of(task.opened.twin), task.opened.fit)
        result = task.results[0]
        places = count_of((result.dims or result.shape)[:_PLACE_RANK])
        code = OpenPatches(patches, places, machine.lanes, integer(parameters["groups"]))
        inputs, outputs = (schemas_of(each, layouts_of(each), target.device) for each in (task.inputs, task.results))
        return KernelLayer(task, (Rewrite.plain(task),), inputs, outputs[0], code)
