"""Which of a CPU's ways to multiply numbers of a narrower type are offered."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS, DotElement
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine

# Beside which others are not offered, or fewer of their sizes.
_KNOWN: tuple[MultiplyInstruction, ...] = (BFLOAT_DOTS, INTEGER_DOTS, BFLOAT, INTEGER)
# Of a way that another one mostly beats.
_TRIED_OF_SECOND = 2


def refused(machine: Machine, storage: str | None, element: DotElement | None, depth: int) -> Rejected | None:
    """Why a routine is not offered, None if it is.

    Where the CPU multiplies integers as they are stored, that is three times as fast as in f32. Of bf16 it is not:
    some CPUs start its instruction in every other cycle only.

    Args:
        machine: the CPU.
        storage: element type that activations are stored in; None for their own.
        element: what the routine multiplies in groups; None for single numbers, in f32.
        depth: input channels.
    """
    if element is not None:
        return element.refusal(machine)
    better = any(each.is_quantised and depth >= each.group for each in _faster(machine, storage, 1))
    return Rejected(f"the CPU multiplies numbers of {storage} as they are stored") if better else None


def worth_trying(
    found: Sequence[Tiling], machine: Machine, storage: str | None, element: DotElement | None
) -> list[Tiling]:
    """Those of some tilings, best guess first, that are offered beside other ways to multiply such numbers."""
    is_second = bool(_faster(machine, storage, 1 if element is None else element.rate))
    return list(found[:_TRIED_OF_SECOND] if is_second else found)


def has_amx(machine: Machine) -> bool:
    """Whether code can use a unit of the CPU that multiplies matrices."""
    return BFLOAT.refusal(machine) is None


def _faster(machine: Machine, storage: str | None, rate: int) -> list[MultiplyInstruction]:
    """Instructions of the CPU for a type that make more products than one with this rate."""
    return [each for each in _KNOWN if each.dtype == storage and each.rate > rate and each.exists_on(machine)]
