"""Products by weights that are stored transposed."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import flatten, turn_weight
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.packing import Transpose
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten


@dataclass(frozen=True)
class Transposed:
    """Weights ``[K, N]`` stored as ``[N, K]``, and the reverse; IREE generates the code."""

    name: str = "transposed"

    @property
    def traits(self) -> Traits:
        return LOWERED

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.CONTRACTION or not task.weights:
            return Rejected("no product of activations by a weight")
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return rewritten(Rewrite.plain(task), _turn, target)


def _turn(rewrite: Rewrite) -> None:
    flatten(rewrite)
    # Flattening has transposed a weight ``[N, K]`` already.
    if not any(isinstance(step, Transpose) for packing in rewrite.packings for step in packing.steps):
        turn_weight(rewrite)
