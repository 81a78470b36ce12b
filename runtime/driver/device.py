"""Lists devices, and opens one with a session's number of threads."""

from __future__ import annotations

import atexit
import os
import threading
from typing import NamedTuple, SupportsIndex
from weakref import WeakValueDictionary

from sartor.devices import CPU, GPU_KINDS, KINDS, is_cpu
from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.cores import allowed_cpus, find_cores
from sartor.runtime.driver.cpuinfo import processors
from sartor.runtime.driver.drivers import DriverDevice, driver_devices, open_cpu, open_gpu
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.waiting import let_workers_rest

MAX_THREADS = 256  # IREE starts no more workers than this and says nothing.
_MOST_DIGITS = 9  # Python reads no numbers of thousands of digits.


class DeviceInfo(NamedTuple):
    """One usable device: its name for ``open_device``, and the driver's description."""

    spec: str
    name: str


class DeviceSettings(NamedTuple):
    """The settings of a device. ``threads`` and ``spin_us`` are 0 for a GPU."""

    kind: str
    number: int
    threads: int
    spin_us: int

    @property
    def driver(self) -> str:
        """IREE's driver. One thread needs no task system, which costs 2 µs per dispatch."""
        if not is_cpu(self.kind):
            return self.kind
        return "local-sync" if self.threads == 1 else "local-task"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags by which IREE's tools and runtime start these workers."""
        if self.driver != "local-task":
            return ()
        return (*_topology_flags(self.threads), f"--task_worker_spin_us={self.spin_us}")

    def __str__(self) -> str:
        if is_cpu(self.kind):
            return f"cpu with {self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.kind}:{self.number}"


# Equal settings share one device, its worker threads and its device arrays.
_OPEN: WeakValueDictionary[DeviceSettings, NativeDevice] = WeakValueDictionary()
# Devices with worker threads stay open. Closing one waits for these, with Python's lock. A worker that was late to give
# back what an inference used might need that lock to give a file's memory back, and both would wait for ever.
_KEPT: list[NativeDevice] = []
_OPENING = threading.Lock()


def _forget_devices() -> None:
    # Threads do not survive a fork. A child process that used the parent's device, or closed it, would wait for its
    # workers for ever; so it would for the lock, if another thread of the parent was opening a device.
    global _OPENING
    _OPENING = threading.Lock()
    for device in _OPEN.values():
        device.keep()
    _OPEN.clear()
    _KEPT.clear()


os.register_at_fork(after_in_child=_forget_devices)


def device_settings(spec: str = CPU, threads: int | None = None, spin_us: int = 0) -> DeviceSettings:
    """Parse a device's name: ``cpu``, ``vulkan``, ``cuda``, or ``vulkan:1`` for the second device of a kind.

    ``threads`` is the number of CPU workers (default: ``default_threads``); ``spin_us`` is the number of microseconds
    that an idle worker spins before it sleeps.

    Raises:
        UsageError: if the name is unknown, a number is out of range, or a GPU is given ``threads`` or ``spin_us``.
    """
    kind, colon, index = str(spec).partition(":")
    is_numbered = index.isascii() and index.isdecimal() and len(index) <= _MOST_DIGITS and not is_cpu(kind)
    if kind not in KINDS or bool(colon) != is_numbered:
        raise UsageError(f"'{spec}' is not a device; use cpu, vulkan, cuda or for example vulkan:1")
    if not is_cpu(kind):
        if threads is not None or spin_us:
            raise UsageError(f"threads and spinning are settings of the cpu device, not of '{spec}'")
        return DeviceSettings(kind, int(index or 0), 0, 0)
    if threads is not None and not (_is_whole(threads) and 1 <= threads <= MAX_THREADS):
        raise UsageError(f"a cpu device has 1 to {MAX_THREADS} threads, but {threads!r} were asked for")
    if not (_is_whole(spin_us) and spin_us >= 0):
        raise UsageError(f"workers can spin for 0 or more whole microseconds, not {spin_us!r}")
    return DeviceSettings(CPU, 0, threads or default_threads(), spin_us)


def _is_whole(value: object) -> bool:
    """Whether a value is a whole number, also one of numpy's; type hints are not checked when a program runs."""
    return isinstance(value, SupportsIndex) and not isinstance(value, bool)


def open_device(spec: str = CPU, threads: int | None = None, spin_us: int = 0) -> NativeDevice:
    """Open a device; arguments as for ``device_settings``.

    Devices with several thread counts can be open at once in a process. Equal settings give the same device.

    Raises:
        UsageError: if the settings are not valid.
        DeviceError: if there is no such device or it cannot be opened.
    """
    settings = device_settings(spec, threads, spin_us)
    with _OPENING:
        device = _OPEN.get(settings)
        if device is None:
            device = _open(settings)
            _OPEN[settings] = device
            if is_cpu(settings.kind) and not device.blocking:
                _keep_open(device)
        return device


def _keep_open(device: NativeDevice) -> None:
    """Keep a device until the process ends, and then until its workers have nothing to give back."""
    if not _KEPT:
        atexit.register(let_workers_rest)
    _KEPT.append(device)


def fresh_cpu() -> NativeDevice:
    """A new CPU device of one thread that is not shared, so that its statistics are the caller's alone.

    Raises:
        DeviceError: if it cannot be opened.
    """
    return _open(DeviceSettings(CPU, 0, 1, 0))


def _open(settings: DeviceSettings) -> NativeDevice:
    if is_cpu(settings.kind):
        return open_cpu(str(settings), settings.driver, settings.flags)
    return open_gpu(str(settings), settings.driver, _find_gpu(settings))


def _find_gpu(settings: DeviceSettings) -> DriverDevice:
    devices = driver_devices(settings.kind)
    if settings.number >= len(devices):
        raise DeviceError(f"there is no device '{settings}': the driver lists {len(devices)}")
    return devices[settings.number]


def tool_device(settings: DeviceSettings) -> str:
    """The value of ``--device`` that selects the device in IREE's tools.

    Raises:
        DeviceError: if there is no such device.
    """
    if is_cpu(settings.kind):
        return settings.driver
    return f"{settings.driver}://{device_path(settings)}"


def device_path(settings: DeviceSettings) -> str:
    """What the driver names a GPU by: on CUDA its UUID, as ``nvidia-smi -L`` has it.

    Raises:
        DeviceError: if there is no such device.
    """
    return _find_gpu(settings).path


def list_devices() -> list[DeviceInfo]:
    """All usable devices, the CPU first. Kinds without a driver are left out."""
    devices = [DeviceInfo(CPU, _cpu_name())]
    for kind in GPU_KINDS:
        try:
            present = driver_devices(kind)
        except DeviceError:
            continue
        devices += [DeviceInfo(f"{kind}:{index}", gpu.name) for index, gpu in enumerate(present)]
    return devices


def is_available(driver: str) -> bool:
    """Whether this machine has a device of a kind (``cpu``, ``vulkan``, ``cuda``)."""
    return any(device.spec.split(":")[0] == driver for device in list_devices())


def physical_cores() -> int:
    """Number of physical cores that this process may use, at least 1: by its affinity, and by its groups' quota."""
    return find_cores(allowed_cpus()).processes


def default_threads() -> int:
    """Number of CPU workers by default: one per performance core of one NUMA node, within the groups' quota."""
    return min(find_cores(allowed_cpus()).workers, MAX_THREADS)


def threads_on_all_cores() -> int:
    """Number of CPU workers with one per efficiency core, too; that of ``default_threads`` where there are none."""
    return min(find_cores(allowed_cpus()).workers_on_all, MAX_THREADS)


def _topology_flags(threads: int) -> tuple[str, ...]:
    # Pinned workers have a core each. Workers that are not pinned were observed to share one for whole runs (2 threads
    # on 2 cores: median 2.4 instead of 1.5 ms). IREE pins by the machine's cores and ignores taskset.
    allowed = allowed_cpus()
    cores = find_cores(allowed)
    restricted = len(allowed) < (os.cpu_count() or 1)
    # IREE takes cores by their number, and knows performance cores by their capacity alone: where it might take others,
    # the system places workers better.
    may_err = cores.performance < threads or not cores.in_front
    if restricted or (may_err and threads < cores.physical) or threads > cores.physical:
        return (f"--task_topology_group_count={threads}", "--task_topology_nodes=current")
    where = "current" if threads <= cores.node + cores.efficiency else "all"
    # Kernels divide their work evenly, so that all wait for an efficiency core. Flags hold until they are set again.
    level = "high" if threads <= cores.performance < cores.physical else "any"
    return (
        "--task_topology_group_count=0",
        f"--task_topology_performance_level={level}",
        f"--task_topology_max_group_count={threads}",
        f"--task_topology_nodes={where}",
    )


def _cpu_name() -> str:
    names = (processor.get("model name") for processor in processors())
    return next(filter(None, names), "cpu")
