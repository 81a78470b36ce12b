"""The interface of instructions that multiply numbers of a narrower type and add several products to each sum.

A routine's file may define an instruction of its own: all that others need to know is a property here, and nothing
looks instructions up by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sartor.codegen.ir.layer import I32
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class MultiplyInstruction(ABC):
    """An instruction that multiplies groups of neighbouring numbers and adds the products of each group to one sum.

    Attributes:
        dtype: element type of the operands.
        group: products that are added to a sum at once.
        sums: element type of the sums, which have 32 bits.
        product: name of LLVM's intrinsic function.
    """

    dtype: str
    group: int
    sums: str
    product: str

    @property
    def is_quantised(self) -> bool:
        """Whether the operands are quantised."""
        return self.sums == I32

    @property
    @abstractmethod
    def rate(self) -> int:
        """Products of one instruction, relative to an instruction in f32 on the same vectors."""

    @property
    @abstractmethod
    def requirement(self) -> str:
        """The CPU features that provide the instruction, by LLVM's names."""

    @abstractmethod
    def exists_on(self, machine: Machine) -> bool:
        """Whether a CPU has the instruction, even if the operating system withholds it."""

    @abstractmethod
    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU cannot use the instruction; None if it can."""
