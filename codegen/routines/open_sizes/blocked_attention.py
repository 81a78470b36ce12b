"""Attention by blocks of keys on a CPU, for any number of queries and keys or for known ones, by one kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.attention.attention_form import attention_form
from sartor.codegen.kernels.attention.attention_layer import attention_stages
from sartor.codegen.kernels.attention.blocked_attention import MOST_QUERIES, BlockedAttention
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.costs import BlockedAttentionCost
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.routines.open_sizes.attention import MOST_FEW

# Queries of a tile, and vectors of keys whose scores are computed at once, where registers hold their sums.
_TILES = ((4, 4), (6, 4), (6, 2), (4, 2))
_MOST_TILES = 2
_STAGES = 3


@dataclass(frozen=True)
class BlockedAttentionKernel:
    """Scores of queries with blocks of keys, the softmax of those seen so far, and the sums of values.

    Parameters: ``rows`` of a tile, ``vectors`` of keys, and ``groups``, workgroups that partition the queries.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "blocked_attention"

    @property
    def traits(self) -> Traits:
        sizes = ("rows", "vectors", "groups")
        return Traits(fuses=True, opens=True, sizes=sizes, estimate=BlockedAttentionCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
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

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a task.

        Raises:
            ValueError: if there is no kernel for it.
        """
        machine = kernel_machine(task, target)
        if isinstance(machine, Rejected):
            raise ValueError(machine.reason)
        form, rewrites = attention_form(task)
        rows, vectors, groups = (integer(parameters[name]) for name in ("rows", "vectors", "groups"))
        code = BlockedAttention(form, rows, vectors, machine.lanes, groups)
        code.check()
        inputs, outputs = (schemas_of(types, layouts_of(types), target.device) for types in (task.inputs, task.results))
        return KernelLayer(task, rewrites, inputs, outputs[0], code)
