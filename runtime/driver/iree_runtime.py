"""The only module that imports IREE's runtime: thin typed wrappers that keep native objects alive in the right order.

It imports the native library alone. The package ``iree.runtime`` around it loads what no session needs (other wrappers,
a benchmark tool, element types of ml_dtypes), which took a fifth as long as numpy. Who wants that package can import it
beside: it uses the same library.

IREE returns a buffer's memory to a pool of its device. If the device is freed before the buffer, that writes to freed
memory. So every wrapper below holds its device and releases it last.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import mmap
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from iree._runtime.libs import _runtime as rt  # noqa: TID251

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.waiting import CalmedThreads, PatientWait, thread_times

# Flags of IREE for the whole process, which the package ``iree.runtime`` reads when it is loaded.
_FLAGS = "IREE_PY_RUNTIME_FLAGS"
# The exceptions of IREE's bindings; NotImplementedError is a RuntimeError.
NATIVE_ERRORS = (RuntimeError, ValueError, IndexError)

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
SOFTWARE_GPUS = ("llvmpipe", "SwiftShader")
"""Beginnings of the names of Vulkan devices that compute on the host's processors."""
# Between questions whether a run has ended: little beside an inference on a software GPU, which takes milliseconds.
_ASK_SECONDS = 2e-4
_STATUS = r"(?s)^.*?(?:\S+:\d+: )?[A-Z_]{4,}; "


if os.environ.get(_FLAGS):
    importlib.import_module("iree.runtime")


@functools.cache
def _instance() -> Any:
    return rt.VmInstance()


def reason(error: BaseException) -> str:
    """IREE's message without source location, status code and stack, as one line of at most 300 characters."""
    text = re.sub(_STATUS, "", str(error), count=1).split("; while ")[0].split("\n\n")[0]
    return " ".join(text.split()).strip(" ;")[:300]


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


def buffer_view(buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """A view of a buffer as a dense row-major tensor."""
    return rt.HalBufferView(buffer, shape, _element_type(dtype))


@functools.cache
def _element_type(dtype: np.dtype[Any]) -> Any:
    """IREE's element type. It is cached, because a dtype looks up its name at each access."""
    name = "uint8" if dtype.name in _BYTES else dtype.name
    kind, bits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    return getattr(rt.HalElementType, f"{_ELEMENT_TYPES[kind]}_{bits or 8}")


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
        found = rt.get_cached_hal_driver(driver).query_available_devices()
    except NATIVE_ERRORS as error:
        raise DeviceError(f"no {driver} device can be used: {reason(error)}") from None
    return [DriverDevice(device["device_id"], device["path"], device["name"]) for device in found]


def open_gpu(label: str, driver: str, found: DriverDevice) -> NativeDevice:
    """Open one of a driver's devices; ``label`` names it in errors.

    Raises:
        DeviceError: if the driver cannot open it.
    """
    try:
        with CalmedThreads():
            device = rt.get_cached_hal_driver(driver).create_device(found.identifier)
    except NATIVE_ERRORS as error:
        raise DeviceError(f"the device '{label}' cannot be opened: {reason(error)}") from None
    software = found.name.startswith(SOFTWARE_GPUS) and bool(thread_times())
    return NativeDevice(device, label, host_memory=False, blocking=False, software=software)


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
            "data": (contents.ctypes.data, False),
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


def parse_module(content: bytes | mmap.mmap | memoryview, label: str) -> Any:
    """Parse a .vmfb's content to a VM module: bytes are copied to aligned memory, mapped memory is used in place.

    Raises:
        UsageError: if it is not an IREE module; ``label`` names it.
    """
    parse = rt.VmModule.copy_buffer if isinstance(content, bytes) else rt.VmModule.wrap_buffer
    try:
        return parse(_instance(), content)
    except NATIVE_ERRORS as error:
        raise UsageError(f"{label} is not an IREE module (.vmfb): {reason(error)}") from None


def tool(name: str) -> Path:
    """One of IREE's command line tools, as they are installed with its runtime."""
    return Path(rt.__file__).resolve().with_name(name)


def benchmark_rows(
    path: Path, entry: str, inputs: Sequence[str], flags: Mapping[str, Sequence[str]], timeout: float
) -> list[dict[str, Any]]:
    """Run IREE's benchmark tool on a function; returns the rows of its report.

    Raises:
        DeviceError: if the tool fails or takes longer than ``timeout`` seconds.
    """
    from iree.runtime import benchmark  # noqa: TID251

    try:
        results = benchmark.benchmark_module(path, entry_function=entry, inputs=list(inputs), timeout=timeout, **flags)
    except benchmark.BenchmarkTimeoutError:
        raise DeviceError(f"benchmarking '{path}' took longer than {timeout} s") from None
    except (benchmark.BenchmarkToolError, *NATIVE_ERRORS) as error:
        raise DeviceError(f"'{path}' cannot be benchmarked: {reason(error)}") from None
    return [result.report for result in results]


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
        modules = [rt.create_hal_module(_instance(), device.hal), module]
        if parameters:
            providers = [_open_parameters(scope, weights) for scope, weights in sorted(parameters.items())]
            modules.insert(0, rt.create_io_parameters_module(_instance(), *providers))
        try:
            self._context = rt.VmContext(_instance(), modules)
        except NATIVE_ERRORS as error:
            raise _load_error(label, device, error) from None

    def __del__(self) -> None:
        self.__dict__.pop("_context", None)

    def fork(self) -> Program:
        """The same module in a context of its own: with its own states, and the same code and weights.

        Raises:
            DeviceError: if the device has no memory left.
        """
        return Program(self._module, self._label, self.device, self._parameters)

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self._module.lookup_function(name)
        return self._functions[name]

    def invoke(self, function: str, views: Sequence[Any], fences: Fences | None = None) -> list[Any]:
        """Call an exported function on buffer views; returns the results' views, with fences before they are written.

        Raises:
            DeviceError: if the device fails.
            UsageError: if the process was forked from the one that opened the device.
        """
        self.device.check_process()
        inputs = rt.VmVariantList(len(views) + 2)
        for argument in (*views, *((fences.ready, fences.finished) if fences else ())):
            inputs.push_ref(argument.ref)
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
        found, arguments, nothing = self._function(function), rt.VmVariantList(len(views)), rt.VmVariantList(0)
        for view in views:
            arguments.push_ref(view.ref)

        def call() -> None:
            self.device.check_process()
            try:
                with self.device.waiting():
                    self._context.invoke(found, arguments, nothing)
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


def write_parameters(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as a parameter archive (.irpa), each under its name.

    Raises:
        RuntimeError, ValueError, IndexError: from IREE, if the file cannot be written; the message contains "out of
            disk space" if the disk is full.
    """
    index = rt.ParameterIndex()
    for name, array in arrays.items():
        index.add_buffer(name, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    index.create_archive_file(str(path))


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
        kind = {"local": "cpu"}.get(wanted[1], wanted[1])
        if kind == "cpu" and device.host_memory and (isa := re.search(r'target_triple = "(\w+)-', text)):
            return DeviceError(f"{label} holds code for {isa[1]}, which this machine does not run; compile it for host")
        return DeviceError(f"{label} holds code for {kind}, which '{device}' cannot run; open it on {kind}")
    return DeviceError(f"{label} cannot be loaded on '{device}': {reason(error)}")
