"""Asks NVIDIA's management library at which rate a GPU's multiprocessors run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_LIBRARY = "libnvidia-ml.so.1"
_MULTIPROCESSORS = 1  # NVML_CLOCK_SM

ReadClock = Callable[[], float | None]
"""A clock's rate in MHz at this moment; None if it is not known."""


def clock_of(device: str) -> ReadClock | None:
    """What reads the clock of a device; None for devices that are not NVIDIA's, and without NVIDIA's library.

    Args:
        device: as ``open_device`` takes it; of several GPUs, numbers are those of the management library.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return None
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(int(number or 0), ctypes.byref(handle)):
        return None

    def read() -> float | None:
        rate = ctypes.c_uint()
        failed = library.nvmlDeviceGetClockInfo(handle, _MULTIPROCESSORS, ctypes.byref(rate))
        return None if failed else float(rate.value)

    return read
