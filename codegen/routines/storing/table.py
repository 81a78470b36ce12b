"""Elementwise layers of one tensor in 8 bits by a table of all 256 results, as activations are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST, IMAGE_RANK, PLAIN
from sartor.codegen.ir.schema import QUANTISED, Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.kernels.layers.image_layer import layout_for
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.kernels.layers.kernel_routine import StoringKernel
from sartor.codegen.kernels.loops.partition import long_workgroups
from sartor.codegen.kernels.windows.costs import CopyCost
from sartor.codegen.kernels.windows.table import ENTRIES, SHUFFLES, Table, table_ops
from sartor.codegen.mlir.kernel_machine import CPU_ONLY, kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Instructions that look a vector of bytes up, by the bytes of a vector of f32.
_INSTRUCTIONS = 12


@dataclass(frozen=True)
class TableLookUp(StoringKernel):
    """Looks each element up in the results of all codes, whatever the layer's ops and the layout.

    Parameters: ``groups``, workgroups that partition the elements.
    """

    name: str = "table"
    storage: str | None = QUANTISED

    @property
    def traits(self) -> Traits:
        estimate = CopyCost(_INSTRUCTIONS)
        return replace(super().traits, slowdown=LOWERED.slowdown, sizes=("groups",), estimate=estimate)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """The number of workgroups, or why the routine does not apply."""
        machine = required(self._machine(task, target))
        return [{"groups": long_workgroups(task.results[0].elements // self._size(machine), machine.threads)}]

    def _machine(self, task: Task, target: Target) -> Machine | Rejected:
        if task.kind not in (LayerKind.TOLERANT, LayerKind.FIXED):
            return Rejected("the layer has a root")
        if len(task.inputs) != 1 or task.weights or task.inputs != task.results:
            return Rejected("it reads more than one tensor, or gives another one's shape")
        if task.results[0].elements < ENTRIES:
            return Rejected("it has fewer elements than a table")
        machine = kernel_machine(task, target, self.storage, CPU_ONLY)
        if not isinstance(machine, Rejected) and not self._size(machine):
            return Rejected("the CPU has no instruction that looks up bytes of a vector")
        return machine

    def _size(self, machine: Machine) -> int:
        """Bytes that are looked up at once; 0 if no instruction does."""
        return next((size for feature, (_, size) in SHUFFLES.items() if feature in machine.features), 0)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a layer.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        machine = required(self._machine(task, target))
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            ops, source = table_ops(rewrite.function)
        groups = integer(parameters["groups"])
        code = Table(ops, source, task.results[0].elements, self._size(machine), groups, machine.lanes)
        tensor = task.results[0]
        layout = layout_for(tensor, CHANNELS_LAST) if len(tensor.shape) == IMAGE_RANK else PLAIN
        schema = Schema(target.device, QUANTISED, layout)
        return KernelLayer(task, (rewrite,), (schema,), schema, code)
