"""Attention by blocks of keys on a CPU, for any number of queries and keys or for known ones, by one kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.attention.attention_kernel import AttentionRoutine
from sartor.codegen.kernels.attention.attention_layer import attention_stages
from sartor.codegen.kernels.attention.blocked_attention import MOST_QUERIES, BlockedAttention
from sartor.codegen.kernels.attention.open_attention import MOST_FEW
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import BlockedAttentionCost
from sartor.codegen.mlir.kernel_machine import kernel_machine

# Queries of a tile, and vectors of keys whose scores are computed at once, where registers hold their sums.
_TILES = ((4, 4), (6, 4), (6, 2), (4, 2))
_MOST_TILES = 2
_STAGES = 3


@dataclass(frozen=True)
class BlockedAttentionKernel(AttentionRoutine):
    """Scores of queries with blocks of keys, the softmax of those seen so far, and the sums of values.

    Parameters: ``rows`` of a tile, ``vectors`` of keys, and ``groups``, workgroups that partition the queries.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "blocked_attention"
    code = BlockedAttention

    @property
    def traits(self) -> Traits:
        sizes = ("rows", "vectors", "groups")
        return Traits(fuses=True, opens=True, sizes=sizes, estimate=BlockedAttentionCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = required(kernel_machine(task, target))
        stages = attention_stages(task)
        shape = stages[0].task.results[0].shape if len(stages) >= _STAGES else ()
        if len(shape) < _STAGES:
            return Rejected("not a product, a softmax and a product")
        *outer, queries, _ = shape
        if queries <= MOST_FEW:
            return Rejected(f"its {queries} queries are too few to copy keys for them")
        groups = many_workgroups(math.prod(outer) * -(-queries // MOST_QUERIES), machine.threads)
        tiles = [tile for tile in _TILES if math.prod(tile) <= machine.accumulators][:_MOST_TILES]
        return [{"rows": rows, "vectors": vectors, "groups": groups} for rows, vectors in tiles]
