"""Attention over any number of queries and keys, or over few queries, on a CPU, by one kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.attention.attention_kernel import AttentionRoutine
from sartor.codegen.kernels.attention.attention_layer import attention_stages
from sartor.codegen.kernels.attention.open_attention import MOST_FEW, OpenAttention
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import OpenAttentionCost
from sartor.codegen.mlir.kernel_machine import kernel_machine

# Queries of a tile, and vectors of keys whose scores are computed at once.
_TILES = ((4, 4), (6, 2), (8, 2), (4, 2))
_STAGES = 3


def _tiles(task: Task) -> tuple[tuple[int, int], ...]:
    """Tiles for a task; for a decoder, which has a few queries for each head of keys, those of no more rows."""
    (scores,) = attention_stages(task)[0].task.results
    shape = scores.dims or scores.shape
    queries = shape[-2] if len(shape) > 1 else 0
    if not isinstance(queries, int) or not 0 < queries <= MOST_FEW:
        return _TILES
    return ((queries, 1), *(tile for tile in _TILES if tile[0] <= queries))


@dataclass(frozen=True)
class OpenAttentionKernel(AttentionRoutine):
    """Scores of queries and keys, their softmax, and the sums of values, for any number of each, or a few queries.

    Parameters: ``rows`` of a tile, ``vectors`` of keys, and ``groups``, workgroups that partition the tiles.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_attention"
    code = OpenAttention

    @property
    def traits(self) -> Traits:
        sizes = ("rows", "vectors", "groups")
        return Traits(fuses=True, opens=True, sizes=sizes, estimate=OpenAttentionCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        stages = attention_stages(task)
        shape = stages[0].task.results[0].shape if len(stages) >= _STAGES else ()
        if len(shape) < _STAGES:
            return Rejected("not a product, a softmax and a product")
        *outer, queries, _ = shape
        if task.opened is None and not 0 < queries <= MOST_FEW:
            return Rejected(f"its sizes are known, and {queries} queries for each head of keys are not few")
        machine = required(kernel_machine(task, target))
        heads = math.prod(outer)
        return [
            {"rows": rows, "vectors": vectors, "groups": many_workgroups(heads * -(-queries // rows), machine.threads)}
            for rows, vectors in _tiles(task)
        ]
