"""Which of a CPU's ways to multiply numbers of a narrower type are offered."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER
from sartor.codegen.kernels.isa.multipliers import DOTS, DotElement
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine

_UNITS = {each.dtype: each for each in (BFLOAT, INTEGER)}
# Of a way that another one mostly beats.
_TRIED_OF_SECOND = 2


def refused(machine: Machine, storage: str | None, element: DotElement | None, depth: int) -> Rejected | None:
    """Why a routine is not offered, None if it is.

    Where the CPU multiplies whole numbers as they are stored, that is three times as fast as in f32. Of bf16 it is not:
    some CPUs start its instruction in every other cycle only.

    Args:
        machine: the CPU.
        storage: element type that activations are stored in; None for their own.
        element: what the routine multiplies in groups; None for single numbers, in f32.
        depth: input channels.
    """
    if element is not None:
        return element.refusal(machine)
    better = DOTS.get(storage or "")
    if better is None or not better.is_quantised or depth < better.group or better.refusal(machine) is not None:
        return None
    return Rejected(f"the CPU multiplies numbers of {better.dtype} as they are stored")


def worth_trying(
    found: Sequence[Tiling], machine: Machine, storage: str | None, element: DotElement | None
) -> list[Tiling]:
    """Those of some tilings, best guess first, that are offered beside other ways to multiply such numbers."""
    unit = _UNITS.get(storage or "")
    has_unit = unit is not None and unit.feature in machine.features
    dots = None if element is not None else DOTS.get(storage or "")
    has_dots = dots is not None and dots.refusal(machine) is None
    return list(found[:_TRIED_OF_SECOND] if has_unit or has_dots else found)
