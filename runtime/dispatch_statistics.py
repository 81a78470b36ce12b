"""The times of a module's dispatches, as IREE's benchmark tool reports them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sartor.devices import CPU, is_cpu
from sartor.errors import DeviceError
from sartor.runtime.driver.device import device_settings, tool_device
from sartor.runtime.driver.iree_runtime import benchmark_rows
from sartor.runtime.driver.signature import Array
from sartor.runtime.mapping.heap import LARGEST
from sartor.runtime.module import wants_huge_pages
from sartor.runtime.several.record import without_plan
from sartor.workspace import workspace

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TUNABLES = "GLIBC_TUNABLES"
# With this the GNU C library requests huge pages for all memory that it allocates.
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
# With these it keeps blocks that an inference frees for the next, as it does once a session has freed one
# (``extend_heap``). Else, in one process of four, an activation's pages are missing in each inference, and the layer
# that writes it takes up to seven times as long.
_KEPT = f"glibc.malloc.mmap_threshold={LARGEST}:glibc.malloc.trim_threshold={2 * LARGEST}"
_ELEMENT_TYPES = {"bool": "i1", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Dispatch:
    """A dispatch in an inference: the number of its calls, and the sum of their seconds."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class DispatchStatistics:
    """Seconds of one whole inference, and its dispatches, the longest first.

    Dispatches with the same code are one entry. They are timed in a second pass, with IREE's profiler.
    """

    seconds: float
    dispatches: tuple[Dispatch, ...]

    def without_plans(self) -> DispatchStatistics:
        """The same, with the names that dispatches would have if their plan were the module's only one."""
        return replace(
            self, dispatches=tuple(replace(dispatch, name=without_plan(dispatch.name)) for dispatch in self.dispatches)
        )


def dispatch_statistics(
    path: Path,
    entry: str,
    inputs: Sequence[Array],
    *,
    device: str = CPU,
    threads: int | None = None,
    parameters: Mapping[str, Path] | None = None,
    iterations: int = 20,
    timeout: float = 300.0,
) -> DispatchStatistics:
    """Run a module's entry function in IREE's benchmark tool, in a separate process.

    Args:
        path: the module.
        entry: the function to run.
        inputs: its arguments.
        device: as for ``open_device``.
        threads: as for ``open_device``.
        parameters: weight files by scope.
        iterations: number of inferences in each pass.
        timeout: seconds.

    Raises:
        UsageError: if the device's settings are not valid.
        DeviceError: if the tool fails, for example because the device cannot report dispatches.
    """
    settings = device_settings(device, threads)
    huge = is_cpu(device) and wants_huge_pages(path)
    with workspace() as folder:
        arguments = [write_input(array, folder / f"{i}.bin") for i, array in enumerate(inputs)]
        flags = {
            "device": [tool_device(settings)],
            "parameters": [f"{scope}={file}" for scope, file in sorted((parameters or {}).items())],
            "benchmark_min_time": [f"{iterations}x"],
            "dispatch_statistics": ["true"],
            # The same way in which a session loads them.
            "module_mode": ["preload" if huge else "mmap"],
            **{name: [value] for name, _, value in (flag[2:].partition("=") for flag in settings.flags)},
        }
        tunables = f"{_KEPT}:{_HUGE_PAGES}" if huge else _KEPT
        with _inherited({_TUNABLES: tunables} if is_cpu(device) else {}):
            rows = benchmark_rows(path, entry, arguments, flags, timeout)
    seconds = [_seconds(row) for row in rows]
    dispatches = [
        Dispatch(str(row["name"]).partition("/")[2], int(float(str(row["calls"]))), duration)
        for row, duration in zip(rows, seconds, strict=True)
        if "calls" in row
    ]
    if not dispatches:
        raise DeviceError(f"IREE's benchmark tool reported no dispatches for '{entry}' on '{settings}'")
    return DispatchStatistics(seconds[0], tuple(sorted(dispatches, key=lambda item: -item.seconds)))


@contextmanager
def _inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in this context, unless the user has set them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def write_input(array: Array, file: Path) -> str:
    """Write an array for IREE's tools; returns how it is named on their command line."""
    np.ascontiguousarray(array).tofile(file)
    name = array.dtype.name
    element = _ELEMENT_TYPES.get(name) or re.sub("float", "f", re.sub("int", "i", name))
    return "x".join([*map(str, array.shape), element]) + f"=@{file}"


def _seconds(row: Mapping[str, object]) -> float:
    return float(str(row["real_time"])) * _UNITS[str(row["time_unit"])]
