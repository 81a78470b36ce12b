"""Products of two adjacent input channels, whose numbers are loaded as one word of 64 bits.

Mesa's software driver reads memory invocation by invocation, and takes little longer for 64 bits than for 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.invocations import InvocationAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import DotElement, Multiplier, only_offset
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import Machine
from sartor.devices import VULKAN

CHANNELS_OF_A_LOAD = 8
"""Channels that a subgroup loads at once: one for each of its invocations."""


class Pair(NamedTuple):
    """Numbers of two adjacent channels."""

    even: ir.Value
    odd: ir.Value


@dataclass(frozen=True)
class PairFma:
    """Two multiply-adds in f32 for each step, which takes two input channels; all offsets have to be even."""

    group: int = 2
    bytes: int = 4
    dtype: str = "f32"
    is_quantised: bool = False
    pixels: int = 1

    def together(self, lanes: int, steps: int) -> int:
        """Steps that a load of each invocation has numbers for: of 64 bits, else of 32."""
        return next((width for width in (lanes, lanes // 2) if steps % width == 0), 1)

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The sums themselves."""
        return sums

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The accumulators themselves."""
        return accumulators

    def factors(self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None], steps: int) -> Sequence[Pair]:
        """The pairs of a pixel for adjacent steps."""
        offset, invocation = only_offset(offsets), cast(InvocationAssembler, asm)
        if steps == 1:
            return [Pair(*invocation.broadcast_pair(memory, offset))]
        if steps < asm.lanes:
            numbers = asm.load(memory, offset, asm.lanes)
            return [Pair(*(asm.repeated(numbers, 2 * step + index) for index in range(2))) for step in range(steps)]
        both = invocation.load_pair(memory, offset)
        return [Pair(*(asm.repeated(part, step) for part in both)) for step in range(steps)]

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> Pair:
        """The filters of a pair for a vector of channels."""
        return Pair(*cast(InvocationAssembler, asm).load_pair(memory, offset))

    def add(self, asm: Assembler, lhs: Pair, rhs: Pair, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Add both products, the even channel's first."""
        (total,) = accumulators
        for one, other in zip(lhs, rhs, strict=True):
            total = asm.multiply_add(one, other, total)
        return (total,)

    def without(self, skipped: int) -> PairFma:
        """Itself: no numbers are left out."""
        return self


@dataclass(frozen=True)
class PairElement(DotElement):
    """Pairs of f32 in place of an instruction that multiplies groups.

    Attributes:
        channels: sums have to be over a multiple of so many input channels.
    """

    channels: int = CHANNELS_OF_A_LOAD

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why a machine gains nothing from pairs; None if it does."""
        return None if machine.core.pairs else Rejected("the device is not one that loads 64 bits as quickly as 32")

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """The multiplier by pairs."""
        return cast(Multiplier, PairFma())


DEVICES_OF_PAIRS = (VULKAN,)
PAIRS = PairElement("f32", 2, "f32", "", ())


def refused_pairs(machine: Machine, element: DotElement | None, storage: str | None, depth: int) -> Rejected | None:
    """Why single numbers, or pairs, are not offered for sums over ``depth`` channels; None if they are.

    Where pairs can be multiplied, single numbers never load less.
    """
    if isinstance(element, PairElement) and depth % element.channels:
        return Rejected(f"it has {depth} input channels, which is no multiple of {element.channels}")
    if element is None and storage is None and machine.core.pairs and depth % CHANNELS_OF_A_LOAD == 0:
        return Rejected("pairs of channels are loaded more quickly")
    return None


def check_even(distances: Sequence[int]) -> None:
    """Check that pairs of an image lie at even offsets.

    Args:
        distances: all strides of the image.

    Raises:
        RejectionError: if one is odd.
    """
    if any(distance % 2 for distance in distances):
        raise RejectionError("pairs of its numbers do not begin at even offsets")
