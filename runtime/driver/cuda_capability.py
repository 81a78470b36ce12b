"""Asks NVIDIA's driver which compute capability a GPU has; IREE's runtime does not tell."""

from __future__ import annotations

import ctypes

from sartor.errors import DeviceError

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def compute_capability(number: int = 0) -> tuple[int, int]:
    """Compute capability of a GPU, such as (8, 6).

    Args:
        number: which GPU, as the driver counts them.

    Raises:
        DeviceError: if there is no driver, or no such GPU.
    """
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise DeviceError(f"no GPU of CUDA is found: {error}; name the architecture, for example sm_80") from None
    device, capability = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    _call(driver, "cuInit", 0)
    _call(driver, "cuDeviceGet", ctypes.byref(device), number)
    for value, attribute in zip(capability, (_MAJOR, _MINOR), strict=True):
        _call(driver, "cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
    return capability[0].value, capability[1].value


def _call(driver: ctypes.CDLL, function: str, *arguments: object) -> None:
    status = getattr(driver, function)(*arguments)
    if status:
        raise DeviceError(f"NVIDIA's driver refuses {function} with status {status}; name the architecture")
