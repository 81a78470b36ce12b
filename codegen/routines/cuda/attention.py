"""Attention on GPUs of NVIDIA, by one kernel."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.attention.attention_layer import attention_layer, attention_of
from sartor.codegen.kernels.attention.fused_attention import FusedAttention
from sartor.codegen.kernels.cuda.costs import AttentionCost
from sartor.codegen.kernels.cuda.layers import gpu_of
from sartor.codegen.kernels.cuda.tensor_kernel import TensorKernel
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer

_WARPS, _BLOCKS = (4, 2), (32, 64)
# What fits a thread's registers as the assembler finds it: three times the keys of a block, as scores, exponentials and
# fragments, and the columns of the context. Fragments of four bytes leave less, and so do the copies of few warps.
_MOST_COLUMNS = {(2, 2): 320, (2, 4): 320, (4, 2): 192, (4, 4): 224}


@dataclass(frozen=True)
class AttentionKernel(TensorKernel):
    """Scores of queries and keys, their softmax, and the context, with elementwise ops around the products fused.

    Parameters: ``warps`` of a workgroup, each with 16 rows, and keys of a ``block``.
    """

    name: str = "attention"

    @property
    def traits(self) -> Traits:
        estimate = AttentionCost(self.instruction)
        return replace(super().traits, fuses=True, family="attention", sizes=("warps", "block"), estimate=estimate)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        gpu, attention = required(gpu_of(task, target)), required(attention_of(task))
        fitting: list[Parameters] = []
        for warps, block in itertools.product(_WARPS, _BLOCKS):
            code = self.layer(task, {"warps": warps, "block": block}, target).code
            fits = isinstance(code, FusedAttention) and code.shared_bytes <= gpu.shared_bytes
            if fits and 3 * block + attention.value_columns <= _MOST_COLUMNS[self.instruction.bytes, warps]:
                fitting.append({"warps": warps, "block": block})
        return fitting or Rejected("its queries, keys and values do not fit a workgroup")

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        sizes = integer(parameters["warps"]), integer(parameters["block"])
        return attention_layer(task, *sizes, self.instruction, target.device, self.storage)
