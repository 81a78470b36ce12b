"""The base of routines whose kernels multiply matrices by tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_routine import StoringKernel
from sartor.codegen.kernels.tensor_cores.instructions import INSTRUCTIONS, MatrixInstruction


@dataclass(frozen=True)
class TensorKernel(StoringKernel):
    """A kernel that multiplies in the type that is stored, or in TF32.

    Attributes:
        arithmetic: ``tf32`` multiplies numbers of f32 rounded to TF32; None multiplies the type that is stored.
    """

    arithmetic: str | None = None

    @property
    def instruction(self) -> MatrixInstruction:
        """What multiplies matrices."""
        return INSTRUCTIONS[self.arithmetic or self.storage]

    @property
    def traits(self) -> Traits:
        """The traits that follow from element types."""
        own = super().traits
        return replace(own, precision=self.arithmetic or own.precision)
