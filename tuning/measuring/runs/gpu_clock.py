"""Asks NVIDIA's management library at which rate a GPU's multiprocessors run."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from sartor.devices import CUDA
from sartor.errors import DeviceError
from sartor.runtime.driver.device import device_path, device_settings

_LIBRARY = "libnvidia-ml.so.1"
_MULTIPROCESSORS = 1  # NVML_CLOCK_SM

ReadClock = Callable[[], float | None]
"""A clock's rate in MHz at this moment; None if it is not known."""


@functools.cache
def clock_of(device: str) -> ReadClock | None:
    """What reads the clock of a device; None for devices that are not NVIDIA's, and without NVIDIA's library.

    The library numbers GPUs in another order than CUDA does, and has those that ``CUDA_VISIBLE_DEVICES`` hides. So it
    is asked for the UUID by which IREE's driver names the GPU.

    Args:
        device: as ``open_device`` takes it.
    """
    settings = device_settings(device)
    if settings.kind != CUDA:
        return None
    try:
        return _clock_of_gpu(device_path(settings))
    except DeviceError:
        return None


def _clock_of_gpu(uuid: str) -> ReadClock | None:
    handle = ctypes.c_void_p()
    try:
        library = ctypes.CDLL(_LIBRARY)
        begin, find, rate_of = library.nvmlInit_v2, library.nvmlDeviceGetHandleByUUID, library.nvmlDeviceGetClockInfo
    except (OSError, AttributeError):
        return None
    if begin() or find(uuid.encode(), ctypes.byref(handle)):
        return None

    def read() -> float | None:
        rate = ctypes.c_uint()
        failed = rate_of(handle, _MULTIPROCESSORS, ctypes.byref(rate))
        return None if failed else float(rate.value)

    return read
