"""An open IREE device, its memory, and the fences of what runs on it.

IREE returns a buffer's memory to a pool of its device. If the device is freed before the buffer, that writes to freed
memory. So every wrapper below holds its device and releases it last.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, reason, rt
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.waiting import PatientWait

_DEVICE_BUFFER = rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING
_STAGING_MEMORY = rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE
_STAGING_BUFFER = rt.BufferUsage.TRANSFER | rt.BufferUsage.MAPPING_SCOPED
# IREE's names by numpy's, without the number of bits.
_ELEMENT_TYPES = {"bool": "BOOL", "float": "FLOAT", "bfloat": "BFLOAT", "int": "SINT", "uint": "UINT"}
# Types that numpy keeps in a byte, and modules as well.
_BYTES = frozenset(
    {
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
        *("int4", "uint4", "int2", "uint2"),
    }
)
# Between questions whether a run has ended: little beside an inference on a software GPU, which takes milliseconds.
_ASK_SECONDS = 2e-4


class NativeDevice:
    """An open IREE device: a queue, an allocator and, on the CPU, worker threads.

    ``host_memory``: whether it computes in the host's memory, as CPUs do. ``blocking``: whether it computes on the
    calling thread, so that even an asynchronous invocation returns only when it has finished. ``software``: whether it
    is a GPU's driver that computes on the host's processors, whose time the system tells by thread.
    """

    def __init__(self, hal: Any, label: str, *, host_memory: bool, blocking: bool, software: bool = False) -> None:
        self.hal = hal
        self.label = label
        self.host_memory = host_memory
        self.blocking = blocking
        self.software = software
        self._process = os.getpid()

    def __str__(self) -> str:
        return self.label

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be copied or sent to another process, as the threads and memory are this one's."""
        raise UsageError("a device cannot be copied or pickled; open one where it is needed")

    @property
    def is_lost(self) -> bool:
        """Whether this process was forked after the device was opened, whose threads stayed with the parent."""
        return not self.blocking and os.getpid() != self._process

    def check_process(self) -> None:
        """Make sure that somebody would do what is asked of the device.

        Raises:
            UsageError: if it ``is_lost``.
        """
        if self.is_lost:
            raise UsageError(
                f"'{self}' was opened before this process was forked, and its threads stayed with the parent: open a "
                "session in this process, or fork before there is one"
            )

    def keep(self) -> None:
        """Never close it: closing would wait for threads, and in a forked process for ever."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.hal))

    @property
    def peak_bytes(self) -> int | None:
        """Peak of allocated bytes since the device was opened; None if IREE was built without statistics."""
        allocator = self.hal.allocator
        return int(allocator.statistics["device_bytes_peak"]) if allocator.has_statistics else None

    def waiting(self) -> AbstractContextManager[None]:
        """The context in which the calling thread should wait for the device."""
        return PatientWait() if self.host_memory and not self.blocking else nullcontext()

    def store(self, raw: Array) -> Any:
        """Allocate a buffer with these bytes, a one-dimensional uint8 array.

        Raises:
            DeviceError: if the device has no memory left.
        """
        try:
            return self.hal.allocator.allocate_buffer_copy(
                memory_type=rt.MemoryType.DEVICE_LOCAL,
                allowed_usage=_DEVICE_BUFFER,
                device=self.hal,
                buffer=raw,
            )
        except NATIVE_ERRORS as error:
            raise DeviceError(f"{raw.nbytes} bytes cannot be put on '{self}': {reason(error)}") from None

    def map(self, buffer: Any) -> Array:
        """A buffer's bytes: its own memory on the CPU, a copy on other devices.

        Raises:
            DeviceError: if copying fails.
        """
        source = buffer if self.host_memory else self._staged(buffer)
        try:
            return np.asarray(_HostMapping(source.map(), self))
        except NATIVE_ERRORS as error:
            raise DeviceError(f"memory of '{self}' cannot be read: {reason(error)}") from None

    def copy(self, source: Any, target: Any) -> None:
        """Copy a buffer to another of the same length; returns when the copy is done.

        Raises:
            DeviceError: if copying fails.
        """
        fences = Fences(self)
        try:
            self.hal.queue_copy(source, target, wait_semaphores=fences.ready, signal_semaphores=fences.finished)
        except NATIVE_ERRORS as error:
            raise DeviceError(f"copying failed on '{self}': {reason(error)}") from None
        fences.wait(timeout=None)

    def _staged(self, buffer: Any) -> Any:
        try:
            staging = self.hal.allocator.allocate_buffer(
                memory_type=_STAGING_MEMORY,
                allowed_usage=_STAGING_BUFFER,
                allocation_size=buffer.byte_length(),
            )
        except NATIVE_ERRORS as error:
            raise DeviceError(f"memory of '{self}' cannot be read: {reason(error)}") from None
        self.copy(buffer, staging)
        return staging


class _HostMapping:
    """Gives numpy access to a mapped buffer, and keeps its memory and its device alive."""

    def __init__(self, memory: Any, device: NativeDevice) -> None:
        self._memory = memory
        self._device = device
        contents: Array = np.frombuffer(memory, np.uint8)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": contents.shape,
            "data": (contents.__array_interface__["data"][0], False),
        }

    def __del__(self) -> None:
        del self._memory


class Fences:
    """The fences of an asynchronous invocation: ``ready`` lets it start, ``finished`` is signalled at its end."""

    def __init__(self, device: NativeDevice) -> None:
        semaphore = device.hal.create_semaphore(0)
        self.ready = rt.HalFence.create_at(semaphore, 0)
        self.finished = rt.HalFence.create_at(semaphore, 1)
        self._device = device

    def __del__(self) -> None:
        del self.ready, self.finished

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds; returns whether the invocation has finished.

        Raises:
            DeviceError: if the invocation failed.
            UsageError: if the process was forked meanwhile.
        """
        self._device.check_process()
        try:
            if self._device.software:
                return self._is_finished_within(math.inf if timeout is None else timeout)
            nanoseconds = None if timeout is None else int(timeout * 1e9)
            with self._device.waiting():
                return bool(self.finished.wait(timeout=nanoseconds))
        except NATIVE_ERRORS as error:
            raise DeviceError(f"running on '{self._device}' failed: {reason(error)}") from None

    def _is_finished_within(self, timeout: float) -> bool:
        """Ask again and again, and sleep between: waiting in a software driver takes a processor from its threads."""
        end = time.monotonic() + timeout
        while not self.finished.wait(timeout=0):
            if time.monotonic() >= end:
                return False
            time.sleep(_ASK_SECONDS)
        return True

    def settled(self, timeout: float | None) -> bool:
        """As ``wait``, but an invocation that failed, or can never end, counts as finished."""
        if self._device.is_lost:
            return True
        try:
            return self.wait(timeout)
        except DeviceError:
            return True


def buffer_view(buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """A view of a buffer as a dense row-major tensor."""
    return rt.HalBufferView(buffer, shape, _element_type(dtype))


@functools.cache
def _element_type(dtype: np.dtype[Any]) -> Any:
    """IREE's element type. It is cached, because a dtype looks up its name at each access."""
    name = "uint8" if dtype.name in _BYTES else dtype.name
    kind, bits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    return getattr(rt.HalElementType, f"{_ELEMENT_TYPES[kind]}_{bits or 8}")
