"""The CPU level that a file with several would choose on this machine, found out without running anything of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

from sartor.runtime.driver.cpuinfo import features
from sartor.runtime.several.record import Alternative

# Linux's names of features that are called otherwise than LLVM's, but for dashes, dots and underscores.
_ALIASES = {
    "sse3": "pni",
    "fparmv8": "fp",
    "lse": "atomics",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "dotprod": "asimddp",
    "sve2bitperm": "svebitperm",
    "f32mm": "svef32mm",
    "f64mm": "svef64mm",
}
_ARM, _ARM_MACHINES = "aarch64", ("aarch64", "arm64")


def likely_level(plans: Sequence[Alternative]) -> str | None:
    """The first level of some plans whose instruction set and features this CPU has; None if it has those of none.

    A module asks IREE's runtime, which asks the CPU; this reads what Linux says.
    """
    present, is_arm = frozenset(map(_plain, features())), platform.machine() in _ARM_MACHINES
    for plan in plans:
        names = (_plain(name) for name in plan.needs)
        if plan.level.startswith(_ARM) == is_arm and all(_ALIASES.get(name, name) in present for name in names):
            return plan.level
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-._]", "", name)
