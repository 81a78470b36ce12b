"""Loading a file with several plans: its module chooses the level, and says which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sartor.errors import DeviceError
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program, Weights
from sartor.runtime.several.record import LEVEL_FUNCTION, Alternative

# What IREE says if no level's condition holds.
_NONE_FITS = "any variant"


def load(
    native: Any, label: str, device: NativeDevice, weights: Mapping[str, Weights], plans: Sequence[Alternative]
) -> Program:
    """Load a module that chooses its level among those of ``plans``, which may be none.

    Raises:
        DeviceError: if the CPU runs none of the levels, or as ``Program``.
        UsageError: as ``Program``.
    """
    try:
        return Program(native, label, device, weights)
    except DeviceError as error:
        levels = dict.fromkeys(plan.level for plan in plans)
        if len(levels) < 2 or _NONE_FITS not in str(error):
            raise
        raise DeviceError(
            f"{label} has code for the CPU levels {', '.join(levels)}, and this CPU runs none of them; "
            "compile it for a lower one too"
        ) from None


def chosen_level(program: Program, plans: Sequence[Alternative], entry: str) -> str | None:
    """The level that a loaded module chose; None if it has not several.

    Raises:
        DeviceError: if the module's function and its manifest do not agree.
    """
    levels = [*dict.fromkeys(plan.level for plan in plans)]
    if len(levels) < 2:
        return None
    number = program.number(entry + LEVEL_FUNCTION)
    if not 0 <= number < len(levels):
        raise DeviceError(f"the module chose level {number} of {len(levels)}; it is damaged, compile it again")
    return levels[number]
