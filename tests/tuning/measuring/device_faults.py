"""Packing steps by which a device fails while a variant is measured. Workers import this module by name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sartor.codegen.ir.layer import TensorType
from sartor.errors import DeviceError
from sartor.runtime.driver.program import Program
from sartor.tuning.measuring import measure_job


@dataclass(frozen=True)
class DeviceFault:
    """Fails when it is given real data, which no compilation does."""

    def apply(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        if any(array.strides):
            self.fail()
        return array

    def type_of(self, tensor: TensorType) -> TensorType:
        return tensor

    def fail(self) -> None:
        """What happens to the device."""


@dataclass(frozen=True)
class OutOfMemory(DeviceFault):
    """The device has no memory left, and its driver says so in its own words."""

    said: str = "VK_ERROR_OUT_OF_DEVICE_MEMORY"

    def fail(self) -> NoReturn:
        raise DeviceError(f"16 bytes cannot be put on the device: RESOURCE_EXHAUSTED; {self.said}")


@dataclass(frozen=True)
class LaunchFailure(DeviceFault):
    """The kernel does not start; the device stays."""

    said: str = "too many resources requested for launch"

    def fail(self) -> NoReturn:
        raise DeviceError(f"running 'run_it' on the device failed: INTERNAL; {self.said}")


@dataclass(frozen=True)
class LostDevice(DeviceFault):
    """The device that the process has opened fails from now on, whatever runs on it."""

    said: str = "VK_ERROR_DEVICE_LOST"

    def fail(self) -> None:
        lost, invoke, said = measure_job._device("cpu", 1), Program.invoke, self.said

        def failing(program: Program, function: str, views: Sequence[Any], fences: Any = None) -> list[Any]:
            if program.device is lost:
                raise DeviceError(f"running '{function}' on '{lost}' failed: INTERNAL; {said}")
            return invoke(program, function, views, fences)

        Program.invoke = failing  # type: ignore[assignment,method-assign]


@dataclass(frozen=True)
class Hang(DeviceFault):
    """The device never answers."""

    def fail(self) -> NoReturn:
        while True:
            time.sleep(1)
