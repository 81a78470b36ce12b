"""How many workgroups of a kernel are counted in each dimension."""

from __future__ import annotations

import functools
import re

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import executable_target

_OF_CPU = (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFF)
# CUDA has these limits. Drivers for Vulkan have them or lower ones, where the compiler may know of higher ones.
_OF_GPU = (0x7FFFFFFF, 0xFFFF, 0xFFFF)
_DECLARED = re.compile(r"max_workgroup_counts = \[(\d+), (\d+), (\d+)\]")


def check_groups(groups: tuple[int, int, int], target: Target) -> None:
    """Make sure that workgroups can be counted: where they cannot, the last ones would not run, or none would.

    IREE's code for CPUs counts those along the last dimension in 16 bits; CUDA and Vulkan have limits of their own.

    Raises:
        RejectionError: if there are more.
    """
    limits = _OF_CPU if target.is_cpu else _declared(executable_target(target))
    for count, most in zip(groups, limits, strict=True):
        if count > most:
            raise RejectionError(
                f"{count} workgroups along one dimension are more than the {most} that {target.device} counts"
            )


@functools.cache
def _declared(attribute: str) -> tuple[int, ...]:
    """The limits of a GPU, by the attribute of its executables."""
    match = _DECLARED.search(attribute)
    counts = _OF_GPU if match is None else map(int, match.groups())
    return tuple(min(count, most) for count, most in zip(counts, _OF_GPU, strict=True))
