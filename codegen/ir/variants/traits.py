"""Facts that a routine states about itself, so that tuning, search and precision need not know it by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.ir.machines.core import WIDE, Core

Sizes = Mapping[str, int]
"""Numbers of a task by name, as ``task_facts`` writes them."""

FormatClass = tuple[str, bool, bool]
"""Element type, whether images lie in blocks of channels, and whether the result has another type."""

_LOWERED_SLOWDOWN = 8.0
TILED_SLOWDOWN = 3.0
"""Of code that IREE generates in tiles that a routine gives it."""


class AnalyticCost(Protocol):
    """A model of a kernel's run time, from the CPU's registers and ports."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        """Predicted cycles of one inference of a task on a core, with these parameters of the routine."""


class Instruction(Protocol):
    """A CPU instruction that adds several products to each sum."""

    @property
    def requirement(self) -> str:
        """The CPU features that provide the instruction, by LLVM's names."""


@dataclass(frozen=True)
class Traits:
    """Facts about all variants of a routine.

    Attributes:
        family: name that the cost model groups routines by, whatever their layout and element type; None for no group.
        instruction: multiplies groups of numbers of a narrower type; None if numbers are multiplied one by one.
        precision: narrower element type that the user must allow; None if values keep the model's types.
        fuses: whether the routine computes fused tasks, and no others.
        needs_run_time_ranges: whether the routine is only for models that find quantisation ranges at run time.
        blocked: whether images lie in blocks of channels.
        converts: whether the result has another element type than the operands.
        transforms: whether the routine computes in a transformed space, as Winograd's method does, so that results
            differ in more than the order of sums.
        transforms_filters: whether such a routine transforms filters in each call, and they are stored as in the model,
            in fewer bytes.
        rounds_between: whether intermediate values are rounded too, so that the error exceeds that of rounded operands.
        scales_rows: whether the operand that is multiplied is quantised within the kernel, each row by its own range,
            so that values between layers are not rounded.
        weights: narrower type that the packed filters are stored in, while all else keeps its type: such a variant
            reads fewer bytes, and computes the same bits if the type has all of the filters' numbers, or in 8 bits
            rounds them; None for no such type.
        reads_codes: whether the weight stays in blocks of integers as the model has it, so that what is known of a task
            tells the bytes that are read.
        wide: of a routine by whose times this one's are told, in the ratio of both models, where none like it was
            measured: the one that computes the same by filters in the model's own type if ``weights`` are not, or that
            converts what it reads more often; None for none.
        needs_permission: whether it rounds what the model itself may permit to round, layer by layer.
        rounds_factor: whether only the operand that is multiplied is read in 8 bits, by a range found on
            samples.
        sizes: names of the parameters that the learned cost model reads, each a single number.
        cost: predicts cycles so well that tuning tries the sizes that it prefers; None if there is no such model.
        estimate: predicts cycles for targets that cannot be measured, if ``cost`` is None.
        slowdown: predicted time relative to a lower bound for the task; used if there is no model.
        compile_cost: time to compile a variant, relative to a short kernel.
        beside_kernels: kinds of layers for which variants are measured even if kernels apply; kernels always are.
        is_free: whether variants neither compute nor move anything.
        opens: whether there is code for sizes that are known only when it runs.
        threshold: name of the parameter that tells from how many places of the result on other code runs; empty where
            the same code runs with all sizes.
        starts_steps: whether a layer that loops over steps starts dispatches in each of them.
    """

    family: str | None = None
    instruction: Instruction | None = None
    precision: str | None = None
    fuses: bool = False
    needs_run_time_ranges: bool = False
    blocked: bool = False
    converts: bool = False
    transforms: bool = False
    transforms_filters: bool = False
    rounds_between: bool = False
    scales_rows: bool = False
    needs_permission: bool = False
    rounds_factor: bool = False
    weights: str | None = None
    reads_codes: bool = False
    wide: Traits | None = None
    sizes: tuple[str, ...] = ()
    cost: AnalyticCost | None = None
    estimate: AnalyticCost | None = None
    slowdown: float = 1.0
    compile_cost: float = 1.0
    beside_kernels: frozenset[LayerKind] = frozenset(LayerKind)
    is_free: bool = False
    opens: bool = False
    starts_steps: bool = False
    threshold: str = ""


def narrowest(storage: str | None, output: str | None) -> str | None:
    """The narrower type that values are rounded to: that of the result if it has one, else that of the activations.

    Args:
        storage: element type of activations; None for the model's own.
        output: element type of the result if it is another; f32 is the model's own.
    """
    return storage if output in (None, "f32") else output


PLAIN_TRAITS = Traits()
"""Traits of what is measured but belongs to no routine, such as conversions."""

LOWERED = Traits(slowdown=_LOWERED_SLOWDOWN, beside_kernels=frozenset(), starts_steps=True)
"""Traits of routines whose code IREE generates; kernels are faster (docs/records/kernels.md)."""


@dataclass(frozen=True)
class DescribedVariant:
    """A variant without its code: all that is known before it runs.

    Attributes:
        descriptor: names it within its task.
        routine: name of its routine.
        dtype: element type that it computes in.
        traits: traits of its routine.
        parameters: parameters of its routine that are single numbers.
    """

    descriptor: str
    routine: str
    dtype: str
    traits: Traits
    parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def format_class(self) -> FormatClass:
        """What neighbouring layers depend on: variants with equal values need the same conversions around them."""
        return self.dtype, self.traits.blocked, self.traits.converts
