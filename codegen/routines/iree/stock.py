"""Candidate 0: the layer as it was imported; IREE generates the code."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits

# IREE's own lowering takes longer to compile than a kernel, which consists of loops over vectors already.
_COMPILE_COST = 1.5


@dataclass(frozen=True)
class Stock:
    """IREE's own lowering in ONNX's layout."""

    name: str = "stock"

    @property
    def traits(self) -> Traits:
        return replace(LOWERED, family="stock", compile_cost=_COMPILE_COST, opens=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        inputs, outputs = (
            tuple(Schema.plain(tensor, target.device) for tensor in tensors) for tensors in (task.inputs, task.results)
        )
        packings = tuple(Packing() for _ in task.weights)
        if task.opened is not None:
            return Implementation(task.opened.body, inputs, outputs, packings, symbols=task.opened.symbols)
        return Implementation(task.body, inputs, outputs, packings)
