"""Convolutions as a plain product of patches and filters, for devices without packed matrix kernels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.lowerings.im2col import patches_rewrite
from sartor.codegen.mlir.rewriting.rewrite import rewritten


@dataclass(frozen=True)
class Im2colMatmul:
    """NHWC convolution as a matrix product, for which IREE chooses tiles."""

    name: str = "im2col_matmul"

    @property
    def traits(self) -> Traits:
        return LOWERED

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if target.is_cpu:
            return Rejected("packed matrices are faster on a CPU")
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return rewritten(patches_rewrite(task), lambda rewrite: None, target)
