"""Products by weights on packed matrices and IREE's microkernels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import product_rewrite
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.lowerings.mmt4d import use_mmt4d
from sartor.codegen.mlir.machine import float_machine
from sartor.codegen.mlir.rewriting.rewrite import rewritten


@dataclass(frozen=True)
class DataTiled:
    """Product of activations by a weight as ``linalg.mmt4d``; 1x1 convolutions are ``im2col``'s."""

    name: str = "mmt4d"

    @property
    def traits(self) -> Traits:
        return LOWERED

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        if task.kind is not LayerKind.CONTRACTION or not task.weights:
            return Rejected("no product of activations by a weight")
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        return rewritten(product_rewrite(task), lambda rewrite: use_mmt4d(rewrite, machine), target)
