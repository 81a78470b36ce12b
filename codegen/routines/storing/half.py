"""Layers of models in f16 by kernels in f32: loads widen, stores round, and weights stay in f16 in the file.

Kernels that multiply numbers of f16, as GPUs have them, multiply those of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sartor.codegen.ir.layer import F16, F32, Task
from sartor.codegen.ir.packing import Packing, Round
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, Routine, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelRoutine, build_kernel
from sartor.codegen.mlir.kernel_machine import CPU_ONLY
from sartor.codegen.mlir.rewriting.widened import widened


class _Kernel(Routine, KernelRoutine, Protocol):
    """A routine whose variants are kernels."""


@dataclass(frozen=True)
class Half:
    """A kernel for layers of f32 on layers whose activations, weights and results are f16.

    Attributes:
        kernel: a routine for layers of f32, which may store them in f16.
        devices: what it is for.
    """

    kernel: _Kernel
    devices: tuple[str, ...] = CPU_ONLY

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""
        return f"half_{self.kernel.name}"

    @property
    def traits(self) -> Traits:
        """The kernel's traits: values keep the model's types."""
        return replace(self.kernel.traits, precision=None, opens=False)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """The kernel's parameter sets, or why the routine does not apply."""
        if target.device not in self.devices:
            return Rejected(f"the kernel is not for {target.device}")
        wide = widened(task)
        return wide if isinstance(wide, Rejected) else self.kernel.parameters(wide, target)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is none.
        """
        wide = required(widened(task))
        layer = self.kernel.layer(wide, parameters, target)
        inputs = tuple(schema.stored_as(tensor.dtype) for tensor, schema in zip(task.inputs, layer.inputs, strict=True))
        if self.traits.transforms:
            self._widen_filters(task, layer)
        return replace(layer, task=task, inputs=inputs, output=layer.output.stored_as(task.results[0].dtype))

    def _widen_filters(self, task: Task, layer: KernelLayer) -> None:
        """Pack filters in f32: transformed ones have numbers that f16 lacks."""
        (rewrite,) = layer.rewrites
        for index, (packing, weight) in enumerate(zip(layer.packings, task.weights, strict=True)):
            if weight.dtype == F16:
                rewrite.packings[index] = Packing((Round(F32), *packing.steps))
