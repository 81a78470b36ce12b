"""Convolutions as a product of patches and filters, on packed matrices and IREE's microkernels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.lowerings.im2col import patches_rewrite
from sartor.codegen.lowerings.mmt4d import use_mmt4d
from sartor.codegen.mlir.machine import float_machine
from sartor.codegen.mlir.rewriting.rewrite import rewritten


@dataclass(frozen=True)
class Im2col:
    """NHWC convolution as ``linalg.mmt4d``; a 1x1 filter needs no gather."""

    name: str = "im2col"

    @property
    def traits(self) -> Traits:
        return LOWERED

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = float_machine(task, target)
        return machine if isinstance(machine, Rejected) else [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        return rewritten(patches_rewrite(task), lambda rewrite: use_mmt4d(rewrite, machine), target)
