"""Products by weights stored the other way round than the model has them."""

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
    """``[K, N]`` weights stored ``[N, K]`` and the reverse; IREE lowers the product as it sees fit."""

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
    # Flattening has turned the weight already if the model has it the other way.
    if not any(isinstance(step, Transpose) for packing in rewrite.packings for step in packing.steps):
        turn_weight(rewrite)
