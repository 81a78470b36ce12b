"""AMX, the matrix unit of x86-64: whether this process may use it.

A CPU may have it and the operating system still refuse it, in a container or under an old kernel: then the first tile
instruction ends the process. Linux gives tiles only to processes that ask (Documentation/arch/x86/xstate.rst).
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

MATRIX_FEATURES = ("amx-bf16", "amx-int8")
"""Extensions of a CPU, in LLVM's words, that no process may use unasked."""

_ARCH_PRCTL = 158
_REQUEST = 0x1023
_TILE_DATA = 18
_CPUINFO = Path("/proc/cpuinfo")


def unusable(features: Iterable[str]) -> tuple[str, ...]:
    """Those of these extensions that this process cannot use; of others than AMX's nothing is said."""
    return tuple(each for each in features if each in MATRIX_FEATURES and not (_has(each) and tiles_granted()))


@functools.cache
def tiles_granted() -> bool:
    """Whether the operating system lets this process use tiles; it is asked once.

    False where nobody could be asked: on other systems than Linux, and on other CPUs than x86-64.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    return _request() == 0


def _request() -> int:
    """Ask for tiles: 0, or -1 if they are refused."""
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA))


@functools.cache
def _has(feature: str) -> bool:
    """Whether the CPU has an extension, by the name that Linux has for it."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return feature.replace("-", "_") in flags.split()
