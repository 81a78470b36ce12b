"""Attention over any number of queries and keys on a CPU, by one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.attention.attention_kernel import AttentionRoutine
from sartor.codegen.kernels.attention.attention_layer import attention_stages
from sartor.codegen.kernels.attention.open_attention import MOST_FEW, OpenAttention
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import OpenAttentionCost
from sartor.codegen.mlir.kernel_machine import kernel_machine

# Queries of a tile, and vectors of keys whose scores are computed at once.
_TILES = ((4, 4), (6, 2), (8, 2), (4, 2))


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
    """Scores of queries and keys, their softmax, and the sums of values, for any number of each.

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
        if task.opened is None:
            return Rejected("its sizes are known")
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        tiles = task.results[0].elements // task.results[0].shape[-1]
        return [
            {"rows": rows, "vectors": vectors, "groups": many_workgroups(-(-tiles // rows), machine.threads)}
            for rows, vectors in _tiles(task)
        ]
