"""Layers on rows on GPUs of NVIDIA: softmax, normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.cuda.costs import ThreadCost
from sartor.codegen.kernels.cuda.layers import gpu_of, widest_vector
from sartor.codegen.kernels.cuda.rows import WarpRows
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.kernels.layers.kernel_routine import StoringKernel
from sartor.codegen.kernels.rows.row_form import row_form
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


@dataclass(frozen=True)
class WarpRow(StoringKernel):
    """Computes each row by a warp, which keeps it in registers. It has no parameters."""

    name: str = "warp_row"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, family="warp_row", estimate=ThreadCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.FIXED:
            return Rejected("the layer has a root, or may change its layout")
        gpu = gpu_of(task, target)
        return gpu if isinstance(gpu, Rejected) else [{}]

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a layer.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        rewrite = Rewrite.plain(task)
        with rewrite.module.context:
            form = row_form(rewrite.function)
        code = WarpRows(form, len(task.inputs) + len(task.weights), widest_vector(form.length))
        code.check()
        inputs, outputs = (
            schemas_of(tensors, layouts_of(tensors), target.device, self.storage)
            for tensors in (task.inputs, task.results)
        )
        return KernelLayer(task, (rewrite,), inputs, outputs[0], code)
