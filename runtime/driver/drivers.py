"""Opening IREE's devices by their drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sartor.errors import DeviceError
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, reason, rt
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.waiting import CalmedThreads, thread_times

SOFTWARE_GPUS = ("llvmpipe", "SwiftShader")
"""Beginnings of the names of Vulkan devices that compute on the host's processors."""


def open_cpu(label: str, driver: str, flags: Sequence[str]) -> NativeDevice:
    """Open a CPU device by the driver ``local-sync`` or ``local-task``, with IREE's flags.

    Not thread-safe: the flags are global while the driver starts.

    Raises:
        DeviceError: if IREE cannot start the worker threads.
    """
    try:
        rt.parse_flags(*flags)
        # A driver owns its worker threads and reads the flags when it is created. IREE's cached driver would give every
        # session the thread count of the first.
        device = rt.create_hal_driver(driver).create_default_device()
    except NATIVE_ERRORS as error:
        raise DeviceError(f"the CPU device '{label}' cannot be opened: {reason(error)}") from None
    return NativeDevice(device, label, host_memory=True, blocking=driver == "local-sync")


class DriverDevice(NamedTuple):
    """A device in its driver's list; IREE's tools name it ``driver://path``."""

    identifier: int
    path: str
    name: str


def driver_devices(driver: str) -> list[DriverDevice]:
    """The devices of a driver.

    Raises:
        DeviceError: if the driver's library is not installed or does not work.
    """
    try:
        devices = rt.get_cached_hal_driver(driver).query_available_devices()
    except NATIVE_ERRORS as error:
        raise DeviceError(f"no {driver} device can be used: {reason(error)}") from None
    return [DriverDevice(device["device_id"], device["path"], device["name"]) for device in devices]


def open_gpu(label: str, driver: str, driver_device: DriverDevice) -> NativeDevice:
    """Open one of a driver's devices; ``label`` names it in errors.

    Raises:
        DeviceError: if the driver cannot open it.
    """
    try:
        with CalmedThreads():
            device = rt.get_cached_hal_driver(driver).create_device(driver_device.identifier)
    except NATIVE_ERRORS as error:
        raise DeviceError(f"the device '{label}' cannot be opened: {reason(error)}") from None
    software = driver_device.name.startswith(SOFTWARE_GPUS) and bool(thread_times())
    return NativeDevice(device, label, host_memory=False, blocking=False, software=software)
