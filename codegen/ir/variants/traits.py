"""What a routine says of itself to those who choose among variants, so that they need not know it by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sartor.codegen.ir.layer import LayerKind

Sizes = Mapping[str, int]
"""Numbers of a task by name, as ``task_facts`` writes them."""

_LOWERED_SLOWDOWN = 8.0


class AnalyticCost(Protocol):
    """A model of what a kernel takes, made from registers and ports."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int]) -> float:
        """Cycles of one inference of a task, with these parameters of the routine."""


class Instruction(Protocol):
    """A CPU instruction that multiplies several numbers for one sum."""

    @property
    def requirement(self) -> str:
        """The extensions of a CPU that have the instruction, in LLVM's words."""


@dataclass(frozen=True)
class Traits:
    """Facts about all variants of a routine.

    Attributes:
        family: what the cost model takes for alike, whatever the layout and the element type; None for no family.
        instruction: what multiplies numbers of a narrower type; None where numbers are multiplied one by one.
        precision: narrower element type that the user must allow; None if values keep the model's types.
        fuses: whether the routine computes fused tasks, and no others.
        needs_run_time_ranges: whether the routine serves only models that quantise what they multiply when they run.
        blocked: whether images lie in blocks of channels.
        converts: whether the result is stored in another element type than what is multiplied.
        transforms: whether the routine computes in a transformed space, as Winograd's method does, so that results
            differ in more than the order of sums.
        rounds_between: whether it rounds between its steps, so that its error exceeds that of rounded operands.
        cost: predicts cycles; None if there is no model.
        slowdown: predicted time relative to the least that the task can take, where ``cost`` is None.
        compile_cost: time to compile a variant, relative to a short kernel.
        beside_kernels: kinds of layers for which variants are measured although there are kernels; a kernel always is.
    """

    family: str | None = None
    instruction: Instruction | None = None
    precision: str | None = None
    fuses: bool = False
    needs_run_time_ranges: bool = False
    blocked: bool = False
    converts: bool = False
    transforms: bool = False
    rounds_between: bool = False
    cost: AnalyticCost | None = None
    slowdown: float = 1.0
    compile_cost: float = 1.0
    beside_kernels: frozenset[LayerKind] = frozenset(LayerKind)


def narrowest(storage: str | None, output: str | None) -> str | None:
    """The narrower type that values are rounded to: the result's if that has one, else the activations'.

    Args:
        storage: element type of activations; None for the model's own.
        output: element type of the result if it is another; f32 is the model's own.
    """
    return storage if output in (None, "f32") else output


PLAIN_TRAITS = Traits()
"""Of what is measured and is no routine's variant."""

LOWERED = Traits(slowdown=_LOWERED_SLOWDOWN, beside_kernels=frozenset())
"""A routine that leaves the code to IREE, which kernels beat (docs/kernels.md)."""


@dataclass(frozen=True)
class DescribedVariant:
    """A variant without its code: what is known of it before it runs.

    Attributes:
        descriptor: names it within its task.
        routine: name of its routine.
        dtype: element type that it computes in.
        traits: of its routine.
        parameters: of its routine that are one number each.
    """

    descriptor: str
    routine: str
    dtype: str
    traits: Traits
    parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def schema(self) -> tuple[str, bool, bool]:
        """What the neighbours see: element type, layout, and whether the result has another type."""
        return self.dtype, self.traits.blocked, self.traits.converts
