"""What all instructions have in common that multiply numbers of a narrower type, several for one sum.

A routine's file may define an instruction that no other routine uses: whoever needs to know about an instruction asks
it, and none is looked up by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.machine import Machine


@dataclass(frozen=True)
class MultiplyInstruction(ABC):
    """An instruction that multiplies groups of neighbouring numbers and adds the products of each group to one sum.

    Attributes:
        dtype: element type of the factors.
        group: products that one sum gets at once.
        sums: element type of the sums, which have 32 bits.
        product: LLVM's intrinsic function.
    """

    dtype: str
    group: int
    sums: str
    product: str

    @property
    def is_quantised(self) -> bool:
        """Whether factors are integers that stand for others."""
        return self.sums == "i32"

    @property
    @abstractmethod
    def rate(self) -> int:
        """Products that one instruction makes, relative to one of the same vectors in f32."""

    @property
    @abstractmethod
    def requirement(self) -> str:
        """The extensions of a CPU that have the instruction, in LLVM's words."""

    @abstractmethod
    def exists_on(self, machine: Machine) -> bool:
        """Whether a CPU has the instruction, even if the operating system withholds it."""

    @abstractmethod
    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU cannot use the instruction, None if it can."""
