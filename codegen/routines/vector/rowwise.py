"""Softmax, normalization and the like, along the last dimension, by our own kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import QUANTISED, schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.rows.row_form import open_form, row_form
from sartor.codegen.kernels.rows.rowwise import RowwiseKernel
from sartor.codegen.kernels.windows.costs import CopyCost
from sartor.codegen.mlir.kernel_machine import devices_storing, kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Instructions of a vector in all passes over a row, about those of a softmax.
_INSTRUCTIONS = 16


@dataclass(frozen=True)
class Rowwise:
    """Computes row by row, each in the cache until it is complete.

    Parameters: ``groups``, workgroups that partition the rows.

    Attributes:
        name: the algorithm in descriptors.
        storage: element type that activations and the result are stored in; None for their own.
    """

    name: str = "rowwise"
    storage: str | None = None

    @property
    def traits(self) -> Traits:
        estimate = CopyCost(_INSTRUCTIONS)
        slowdown, opens = LOWERED.slowdown, self.storage in (None, QUANTISED)
        return Traits(precision=self.storage, slowdown=slowdown, sizes=("groups",), estimate=estimate, opens=opens)

    def _machine(self, task: Task, target: Target) -> Machine | Rejected:
        return kernel_machine(task, target, self.storage, devices_storing(self.storage))

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.FIXED:
            return Rejected("the layer has a root, or may change its layout")
        machine = required(self._machine(task, target))
        rows = math.prod(task.results[0].shape[:-1])
        return [{"groups": many_workgroups(rows, machine.threads)}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a layer.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        machine = required(self._machine(task, target))
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            form = row_form(rewrite.function)
            if task.opened is not None:
                twin = Rewrite.plain(task.opened.twin)
                form = open_form(form, row_form(twin.function), task.opened.fit)
        arguments = len(task.inputs) + len(task.weights)
        code = RowwiseKernel(form, arguments, machine.lanes, integer(parameters["groups"]))
        inputs, outputs = (
            schemas_of(tensors, layouts_of(tensors), target.device, self.storage)
            for tensors in (task.inputs, task.results)
        )
        return KernelLayer(task, (rewrite,), inputs, outputs[0], code)
