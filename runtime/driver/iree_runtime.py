"""The only module that imports IREE's runtime: its library, its errors, and what needs no device.

It imports the native library alone. The package ``iree.runtime`` around it loads what no session needs (other wrappers,
a benchmark tool, element types of ml_dtypes), which took a fifth as long as numpy. Who wants that package can import it
beside: it uses the same library.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from iree._runtime.libs import _runtime  # noqa: TID251

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Array

rt: Any = _runtime
"""IREE's bindings, which have no types."""
# Flags of IREE for the whole process, which the package ``iree.runtime`` reads when it is loaded.
_FLAGS = "IREE_PY_RUNTIME_FLAGS"
# The exceptions of IREE's bindings; NotImplementedError is a RuntimeError.
NATIVE_ERRORS = (RuntimeError, ValueError, IndexError)

_STATUS = r"(?s)^.*?(?:\S+:\d+: )?[A-Z_]{4,}; "


if os.environ.get(_FLAGS):
    importlib.import_module("iree.runtime")


@functools.cache
def instance() -> Any:
    """The virtual machine of this process."""
    return rt.VmInstance()


def reason(error: BaseException) -> str:
    """IREE's message without source location, status code and stack, as one line of at most 300 characters."""
    text = re.sub(_STATUS, "", str(error), count=1).split("; while ")[0].split("\n\n")[0]
    return " ".join(text.split()).strip(" ;")[:300]


def parse_module(content: bytes | mmap.mmap | memoryview, label: str) -> Any:
    """Parse a .vmfb's content to a VM module: bytes are copied to aligned memory, mapped memory is used in place.

    Raises:
        UsageError: if it is not an IREE module; ``label`` names it.
    """
    parse = rt.VmModule.copy_buffer if isinstance(content, bytes) else rt.VmModule.wrap_buffer
    try:
        return parse(instance(), content)
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
