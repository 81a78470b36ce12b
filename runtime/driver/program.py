"""A module of IREE's virtual machine, loaded on a device with its weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sartor.devices import CPU, is_cpu
from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, instance, reason, rt
from sartor.runtime.driver.native_device import Fences, NativeDevice

Weights = tuple[Path, memoryview | None]
"""A parameter file, and its content if it is in memory; else IREE maps it."""


class Program:
    """A VM module loaded on a device. Invocations must not overlap, which is up to the caller.

    Raises:
        DeviceError: if the module has no code for the device, or the device cannot load it.
        UsageError: if a parameter file is missing or not readable.
    """

    def __init__(self, module: Any, label: str, device: NativeDevice, parameters: Mapping[str, Weights]) -> None:
        self.device = device
        self._label = label
        self._module = module
        # IREE may give weights back on a thread of its own, which is safe as long as they are not given up there.
        self._parameters = parameters
        self._functions: dict[str, Any] = {}
        modules = [rt.create_hal_module(instance(), device.hal), module]
        if parameters:
            providers = [_open_parameters(scope, weights) for scope, weights in sorted(parameters.items())]
            modules.insert(0, rt.create_io_parameters_module(instance(), *providers))
        try:
            self._context = rt.VmContext(instance(), modules)
        except NATIVE_ERRORS as error:
            raise _load_error(label, device, error) from None

    def __del__(self) -> None:
        self.__dict__.pop("_context", None)

    def fork(self) -> Program:
        """The same module in a context of its own: with its own states, and the same code and weights.

        Raises:
            DeviceError: if the device has no memory left.
        """
        return self.on(self.device)

    def on(self, device: NativeDevice) -> Program:
        """The same module in a context of its own on a device that has memory in common with this one.

        Raises:
            DeviceError: if the device has no memory left, or cannot run it.
        """
        return Program(self._module, self._label, device, self._parameters)

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self._module.lookup_function(name)
        return self._functions[name]

    def invoke(
        self, function: str, views: Sequence[Any], fences: Fences | None = None, numbers: Sequence[int] = ()
    ) -> list[Any]:
        """Call an exported function on buffer views; returns the results' views, with fences before they are written.

        Args:
            function: its name.
            views: what it takes first.
            fences: what it takes behind all else, if it does not wait.
            numbers: integers that it takes behind the views.

        Raises:
            DeviceError: if the device fails.
            UsageError: if the process was forked from the one that opened the device.
        """
        self.device.check_process()
        inputs = rt.VmVariantList(len(views) + len(numbers) + 2)
        for argument in views:
            inputs.push_ref(argument.ref)
        for number in numbers:
            inputs.push_int(number)
        for fence in (fences.ready, fences.finished) if fences else ():
            inputs.push_ref(fence.ref)
        outputs = rt.VmVariantList(1)
        try:
            with self.device.waiting():
                self._context.invoke(self._function(function), inputs, outputs)
        except NATIVE_ERRORS as error:
            raise DeviceError(f"running '{function}' on '{self.device}' failed: {reason(error)}") from None
        return [outputs.get_as_object(index, rt.HalBufferView) for index in range(len(outputs))]

    def prepare(self, function: str, views: Sequence[Any]) -> Callable[[], None]:
        """A call of an exported function that gives nothing back, with the same buffer views each time.

        The call raises as ``invoke``.
        """
        callee, arguments, nothing = self._function(function), rt.VmVariantList(len(views)), rt.VmVariantList(0)
        for view in views:
            arguments.push_ref(view.ref)

        def call() -> None:
            self.device.check_process()
            try:
                with self.device.waiting():
                    self._context.invoke(callee, arguments, nothing)
            except NATIVE_ERRORS as error:
                raise DeviceError(f"running '{function}' on '{self.device}' failed: {reason(error)}") from None

        return call

    def give(self, function: str, number: int) -> None:
        """Call an exported function that takes an integer and gives nothing.

        Raises:
            DeviceError: if it refuses the number, or the device fails.
        """
        self.device.check_process()
        inputs = rt.VmVariantList(1)
        inputs.push_int(number)
        try:
            self._context.invoke(self._function(function), inputs, rt.VmVariantList(0))
        except NATIVE_ERRORS as error:
            raise DeviceError(f"running '{function}' on '{self.device}' failed: {reason(error)}") from None

    def number(self, function: str) -> int:
        """What an exported function without arguments gives, which is an integer.

        Raises:
            DeviceError: if the device fails.
        """
        outputs = rt.VmVariantList(1)
        try:
            self._context.invoke(self._function(function), rt.VmVariantList(0), outputs)
        except NATIVE_ERRORS as error:
            raise DeviceError(f"running '{function}' on '{self.device}' failed: {reason(error)}") from None
        return int(outputs.get_variant(0))


def _open_parameters(scope: str, weights: Weights) -> Any:
    path, content = weights
    index = rt.ParameterIndex()
    try:
        if content is None:
            index.load(str(path))
        else:
            index.load_from_file_handle(rt.FileHandle.wrap_memory(content), path.suffix[1:])
    except (OSError, *NATIVE_ERRORS) as error:
        raise UsageError(f"the parameter file '{path}' cannot be loaded: {reason(error)}") from None
    return index.create_provider(scope=scope)


def _load_error(label: str, device: NativeDevice, error: BaseException) -> DeviceError | UsageError:
    text = str(error)
    if "io_parameters" in text:
        return UsageError(f"{label} needs its weights ({reason(error)}); pass parameters={{scope: file}}")
    if "INCOMPATIBLE" in text and (wanted := re.search(r'#hal\.device\.target<"([\w-]+)"', text)):
        kind = {"local": CPU}.get(wanted[1], wanted[1])
        if is_cpu(kind) and device.host_memory and (isa := re.search(r'target_triple = "(\w+)-', text)):
            return DeviceError(f"{label} holds code for {isa[1]}, which this machine does not run; compile it for host")
        return DeviceError(f"{label} holds code for {kind}, which '{device}' cannot run; open it on {kind}")
    return DeviceError(f"{label} cannot be loaded on '{device}': {reason(error)}")
