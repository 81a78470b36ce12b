"""Runs whose inputs and outputs stay where they are, as with ONNX Runtime's IO binding.

An ordinary run allocates its outputs and describes every tensor to IREE anew, which takes longer than a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.device_array import DeviceArray, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.signature import Signature, TensorSpec, check_array


class BoundRun:
    """A model with its inputs and outputs in fixed memory of a device. ``Session.bind`` makes it.

    On a CPU, ``to_host()`` of these arrays is their own memory: write inputs there, call ``run``, read outputs. It
    may be taken once and kept. On other devices it is a copy; ``copy_from`` overwrites an input.
    """

    def __init__(
        self, execute: Callable[[], None], inputs: Mapping[str, DeviceArray], outputs: Mapping[str, DeviceArray]
    ) -> None:
        """Arrays by name, and what runs the model on them."""
        self._execute = execute
        self._inputs, self._outputs = MappingProxyType(dict(inputs)), MappingProxyType(dict(outputs))

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be copied or sent to another process, as the memory is the device's."""
        raise UsageError("a bound run cannot be copied or pickled; bind again where it is needed")

    @property
    def inputs(self) -> Mapping[str, DeviceArray]:
        """The arrays that runs read."""
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, DeviceArray]:
        """The arrays that runs overwrite, with the counts of outputs whose size depends on data (``count_name``)."""
        return self._outputs

    def run(self) -> None:
        """Run the model once; returns when the outputs are written.

        Raises:
            UsageError: if the session is closed, the process was forked from the one that opened the device, or a file
                of the model was changed.
            DeviceError: if the device fails.
        """
        self._execute()


def bound_outputs(
    signature: Signature, given: Mapping[str, DeviceArray], device: NativeDevice
) -> dict[str, DeviceArray]:
    """The arrays of all outputs: those that are given, and new ones.

    Raises:
        UsageError: if an output is not known, or given as an array of another device, type or shape, or its size is not
            known.
        DeviceError: if the device has no memory left.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"outputs is of type {type(given).__name__}, expected device arrays by output name")
    names = [spec.name for spec in signature.outputs]
    if unknown := [name for name in given if name not in names]:
        raise UsageError(f"the model has no output '{unknown[0]}'; its outputs are {names}")
    return {spec.name: _output(spec, given.get(spec.name), device) for spec in signature.outputs}


def _output(spec: TensorSpec, given: DeviceArray | None, device: NativeDevice) -> DeviceArray:
    shape = [size for size in spec.shape if size is not None]
    if len(shape) < len(spec.shape):
        raise UsageError(f"output '{spec.name}' is {spec}: no memory can be bound before its size is known")
    if given is None:
        return upload(np.zeros(shape, spec.numpy_dtype), device)
    if not isinstance(given, DeviceArray) or given.device is not device:
        held = f"on '{given.device}'" if isinstance(given, DeviceArray) else f"of type {type(given).__name__}"
        raise UsageError(
            f"output '{spec.name}' can be bound to an array of the device '{device}' alone, and this one is {held}; "
            "make one with Session.to_device"
        )
    check_array(spec, given.dtype, given.shape, "output")
    return given


def check_apart(inputs: Mapping[str, DeviceArray], outputs: Mapping[str, DeviceArray]) -> None:
    """Make sure that outputs share memory neither with inputs nor with each other: layers run in an order of their own.

    Raises:
        UsageError: if they do; the message names both.
    """
    shared = [*_pairs(inputs.items(), outputs.items()), *combinations(outputs.items(), 2)]
    for (first, one), (second, other) in shared:
        if _overlap(one, other):
            raise UsageError(
                f"'{first}' and output '{second}' are bound to the same memory; bind two arrays, and copy after a run"
            )


def _pairs(
    inputs: Iterable[tuple[str, DeviceArray]], outputs: Iterable[tuple[str, DeviceArray]]
) -> list[tuple[tuple[str, DeviceArray], tuple[str, DeviceArray]]]:
    return [(one, other) for one in inputs for other in outputs]


def _overlap(one: DeviceArray, other: DeviceArray) -> bool:
    if one is other:
        return True
    return one.shares_host_memory and np.may_share_memory(one.to_host(), other.to_host())


def copying(invoke: Callable[[], Sequence[DeviceArray]], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
    """Runs a module that has no entry for bound outputs, and copies what it gives."""

    def call() -> None:
        for source, target in zip(invoke(), outputs, strict=True):
            if target.nbytes and target.shares_host_memory:
                target.to_host()[...] = source.to_host()
            elif target.nbytes:
                target.device.copy(source.view.get_buffer(), target.view.get_buffer())

    return call
