"""Tensors in a device's memory, which need not be copied between runs."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.native_device import NativeDevice, buffer_view
from sartor.runtime.driver.signature import Array, TensorSpec, plain_array


class DeviceArray:
    """A dense row-major tensor in a device's memory; ``nbytes`` is the size of its data."""

    def __init__(self, view: Any, device: NativeDevice, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.view = view
        self.device = device
        self.dtype = dtype
        self.shape = shape
        self.nbytes = math.prod(shape) * dtype.itemsize

    def __del__(self) -> None:
        # The memory is returned to the device, which must still exist.
        self.__dict__.pop("view", None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be copied or sent to another process, as the memory is the device's."""
        raise UsageError("an array on a device cannot be copied or pickled; copy what to_host() gives")

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.device})"

    @property
    def shares_host_memory(self) -> bool:
        """Whether ``to_host`` returns the tensor's own memory (CPU devices) instead of a copy."""
        return self.device.host_memory

    def to_host(self) -> Array:
        """The tensor as a numpy array.

        On a CPU device the array shares memory with the tensor: writing to one changes the other. On other devices
        the data is copied once.

        Raises:
            DeviceError: if copying fails.
        """
        if self.nbytes == 0:
            return np.empty(self.shape, self.dtype)
        contents = self.device.map(self.view.get_buffer())
        return contents[: self.nbytes].view(self.dtype).reshape(self.shape)

    @cached_property
    def host_bytes(self) -> range:
        """The addresses of the tensor's bytes in host memory, which stay the same; none if it is elsewhere.

        Raises:
            DeviceError: if the memory cannot be read.
        """
        if self.nbytes == 0 or not self.shares_host_memory:
            return range(0)
        begin = self.to_host().__array_interface__["data"][0]
        return range(begin, begin + self.nbytes)

    def copy_from(self, array: Array) -> None:
        """Overwrite the tensor with an array of the same element type and shape: one copy.

        Raises:
            UsageError: if element type or shape differ.
            DeviceError: if copying fails.
        """
        array = plain_array(array, "the array")
        if (array.dtype, array.shape) != (self.dtype, self.shape):
            raise UsageError(f"{self!r} cannot take the values of {array.dtype}{list(array.shape)}")
        if self.nbytes == 0:
            return
        if self.device.host_memory:
            self.to_host()[...] = array
        else:
            self.device.copy(upload(array, self.device).view.get_buffer(), self.view.get_buffer())


def upload(array: Array, device: NativeDevice) -> DeviceArray:
    """Copy an array of any memory order to a device.

    Raises:
        DeviceError: if the device has no memory left.
    """
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    view = buffer_view(device.store(raw), array.dtype, array.shape)
    return DeviceArray(view, device, array.dtype, array.shape)


def from_view(view: Any, device: NativeDevice, spec: TensorSpec) -> DeviceArray:
    """The result that ``spec`` describes, in the buffer that a module returned.

    The element type is that of ``spec``, because IREE's integer types have no sign.

    Raises:
        DeviceError: if the buffer is not of that size.
    """
    array = DeviceArray(view, device, spec.numpy_dtype, tuple(view.shape))
    if not spec.accepts_shape(array.shape) or array.nbytes != view.byte_length:
        raise DeviceError(
            f"output '{spec.name}' should be {spec}, but the module gave {view.byte_length} bytes "
            f"of shape {list(array.shape)}"
        )
    return array
