"""Candidate 0: the layer as it was imported, lowered by IREE as it sees fit."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.layer import Task
from sartor.codegen.packing import Packing
from sartor.codegen.routine import Implementation, Parameters, Rejected, plain_inputs, plain_output
from sartor.codegen.target import Target


@dataclass(frozen=True)
class Stock:
    """IREE's own lowering in ONNX's layout."""

    name: str = "stock"

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return Implementation(task.body, plain_inputs(task), plain_output(task), tuple(Packing() for _ in task.weights))
