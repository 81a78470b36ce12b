"""Which of a CPU's instructions for a narrower type are offered for a layer."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS, DotElement
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.kernels.isa.pairs import CHANNELS_OF_A_LOAD, PairElement
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, pair_tilings, tilings
from sartor.codegen.mlir.machine import Machine

# Instructions beside which slower ones are not offered, or with fewer tilings. Pairs of 16-bit numbers are not among
# them: older CPUs multiply them once a cycle, in which they do no more than f32.
_KNOWN: tuple[MultiplyInstruction, ...] = (BFLOAT_DOTS, INTEGER_DOTS, BFLOAT, INTEGER)
# Tilings of a routine that a faster instruction mostly beats.
_TRIED_OF_SECOND = 2


def refused(machine: Machine, storage: str | None, element: DotElement | None, depth: int) -> Rejected | None:
    """Why a routine is not offered; None if it is.

    Multiplying 8-bit integers by an instruction for them is three times as fast as in f32, so f32 is not offered then.
    For bf16 both are: some CPUs start its instruction in every other cycle only.

    Args:
        machine: the CPU.
        storage: element type that activations are stored in; None for their own.
        element: instruction of the routine; None for multiply-adds of single numbers in f32.
        depth: input channels.
    """
    if element is not None:
        return element.refusal(machine)
    better = any(
        instruction.is_quantised and depth >= instruction.group for instruction in _faster(machine, storage, 1)
    )
    return Rejected(f"the CPU has a faster instruction for {storage}") if better else None


def tilings_by(element: DotElement | None, work: Work, machine: Machine) -> list[Tiling]:
    """Tilings, best guess first, for products by an instruction or by pairs of channels; None for single numbers."""
    divides = work.depth % (CHANNELS_OF_A_LOAD // 2) == 0
    is_slow_to_load = isinstance(element, PairElement) and machine.core.pairs and divides
    return pair_tilings(work, machine) if is_slow_to_load else tilings(work, machine)


def worth_trying(
    offered: Sequence[Tiling], machine: Machine, storage: str | None, element: DotElement | None
) -> list[Tiling]:
    """The tilings that are offered: all, or only the first few if the CPU has a faster instruction for the type."""
    is_second = bool(_faster(machine, storage, 1 if element is None else element.rate))
    return list(offered[:_TRIED_OF_SECOND] if is_second else offered)


def has_amx(machine: Machine) -> bool:
    """Whether code for a CPU can use AMX."""
    return BFLOAT.refusal(machine) is None


def _faster(machine: Machine, storage: str | None, rate: int) -> list[MultiplyInstruction]:
    """Instructions of the CPU for a type that have a higher rate than the given one."""
    return [
        instruction
        for instruction in _KNOWN
        if instruction.dtype == storage and instruction.rate > rate and instruction.exists_on(machine)
    ]
