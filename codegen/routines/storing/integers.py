"""Layers with a single tensor in 8 bits: the operand that is multiplied by weights, or the result.

Models that find ranges at run time quantise only what a product reads; scales, a residual and the result are floats.
In transformers a residual has outliers that 8 bits cannot hold, also where the operand of the product has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, Routine
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelRoutine, build_kernel
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.routines.iree.stored import MULTIPLYING, stored


class _Kernel(Routine, KernelRoutine, Protocol):
    """A routine whose variants are kernels."""


@dataclass(frozen=True)
class IntegerFactor:
    """A kernel that reads the operand that it multiplies by weights in 8 bits, and all others in ONNX's types.

    Attributes:
        kernel: a routine that stores all activations in 8 bits.
        storage: the quantised type.
        calibrated: whether it is for ranges found on samples, and not for models that find them at run time.
    """

    kernel: _Kernel
    storage: str | None = QUANTISED
    calibrated: bool = False

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""
        return f"{'factor' if self.calibrated else 'whole'}_{self.kernel.name}"

    @property
    def traits(self) -> Traits:
        """The kernel's traits; the result has the model's own type."""
        finds = not self.calibrated
        traits = replace(self.kernel.traits, converts=True)
        return replace(traits, rounds_factor=self.calibrated, needs_run_time_ranges=finds)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """The kernel's parameter sets, or why the routine does not apply."""
        return self.kernel.parameters(task, target)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is none.
        """
        layer = self.kernel.layer(task, parameters, target)
        factor = layer.factor
        if factor is None:
            raise RejectionError("the kernel multiplies nothing")
        if factor >= len(layer.inputs) or layer.inputs[factor].dtype != self.storage:
            raise RejectionError("the operand that it multiplies by weights is not stored in 8 bits")
        if self.calibrated and _is_read_twice(task, factor):
            raise RejectionError(
                "the operand that it multiplies by weights is added too, and must not be rounded there"
            )
        inputs = tuple(
            schema if index == factor else schema.stored_as(tensor.dtype)
            for index, (tensor, schema) in enumerate(zip(task.inputs, layer.inputs, strict=True))
        )
        return replace(layer, inputs=inputs, output=layer.output.stored_as(task.results[0].dtype))


def _is_read_twice(task: Task, index: int) -> bool:
    """Whether several ops of a layer read an activation."""
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        return len(list(body_of(rewrite.function).arguments[index].uses)) > 1


@dataclass(frozen=True)
class IntegerResult:
    """A routine in f32 that stores its result in 8 bits.

    Attributes:
        lowering: the routine that computes in f32.
        storage: the quantised type.
    """

    lowering: Routine
    storage: str | None = QUANTISED

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""
        return f"{self.lowering.name}_to_whole"

    @property
    def traits(self) -> Traits:
        """The lowering's traits; only the result is quantised."""
        traits = replace(self.lowering.traits, precision=self.storage, opens=False)
        return replace(traits, converts=True, needs_run_time_ranges=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """The lowering's parameter sets, or why the routine does not apply."""
        if task.kind in MULTIPLYING or task.kind is LayerKind.POOLING:
            return Rejected("neither elementwise nor a layer on rows")
        if len(task.results) != 1 or not task.results[0].is_f32:
            return Rejected("it does not have a single result, of f32")
        return self.lowering.parameters(task, target)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        built = self.lowering.build(task, parameters, target)
        return built if isinstance(built, Rejected) else stored(task, built, QUANTISED, reads=False)


@dataclass(frozen=True)
class WholeKernelResult(IntegerResult):
    """An ``IntegerResult`` whose routine is a kernel, which quantises its result itself."""

    lowering: _Kernel

    @property
    def traits(self) -> Traits:
        """As of ``IntegerResult``, whose code for any size is the kernel's own."""
        return replace(super().traits, opens=self.lowering.traits.opens)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is none.
        """
        layer = self.lowering.layer(task, parameters, target)
        return replace(layer, output=layer.output.stored_as(QUANTISED))
