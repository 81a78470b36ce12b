"""Whether this process may use AMX, the matrix extension of x86-64.

The operating system may refuse AMX on a CPU that has it, in a container or with an old kernel. The first tile
instruction then ends the process. Linux grants tiles only to processes that request them
(Documentation/arch/x86/xstate.rst).
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Iterable

from sartor.runtime.driver.cpuinfo import features

MATRIX_FEATURES = ("amx-bf16", "amx-int8")
"""CPU extensions, by LLVM's names, that a process must request."""

_ARCH_PRCTL = 158
_REQUEST = 0x1023
_TILE_DATA = 18


def unusable(features: Iterable[str]) -> tuple[str, ...]:
    """Those of ``features``, by LLVM's names, that this process cannot use; only AMX's extensions are checked."""
    return tuple(
        feature for feature in features if feature in MATRIX_FEATURES and not (_has(feature) and tiles_granted())
    )


@functools.cache
def tiles_granted() -> bool:
    """Whether the operating system lets this process use tiles; the request is made once.

    False on systems other than Linux, and on CPUs other than x86-64.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    return _request() == 0


def _request() -> int:
    """Request tiles; returns 0, or -1 if they are refused."""
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA))


@functools.cache
def _has(feature: str) -> bool:
    """Whether the CPU has an extension, by Linux's name."""
    return feature.replace("-", "_") in features()
