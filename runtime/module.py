"""Opening a .vmfb, which needs no device and reads no weights."""

from __future__ import annotations

import mmap
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import UsageError
from sartor.runtime.iree_runtime import parse_module

_ZIP_START = b"PK\x03\x04"


@dataclass(frozen=True)
class Module:
    """An opened .vmfb; ``label`` names it in errors."""

    native: Any
    label: str

    @property
    def functions(self) -> list[str]:
        """Names of the exported functions, in the module's order."""
        return list(self.native.function_names)

    def reflection(self, function: str) -> dict[str, str]:
        """Reflection attributes of an exported function."""
        return dict(self.native.lookup_function(function).reflection)


def open_module(source: Path | bytes) -> Module:
    """Open a .vmfb, memory-mapped if it is a path and copied to aligned memory if it is bytes.

    Raises:
        UsageError: if the file cannot be read or is not a whole IREE module.
    """
    if isinstance(source, bytes):
        return Module(parse_module(source, "the given content"), "the given content")
    label = f"'{source}'"
    content = _map(source, label)
    # IREE ends its files with a zip directory: one without was cut off, even where its front still parses.
    if content[: len(_ZIP_START)] == _ZIP_START and not zipfile.is_zipfile(source):
        raise UsageError(f"{label} is truncated; compile it again")
    return Module(parse_module(content, label), label)


def _map(path: Path, label: str) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            # IREE's own mmap opens for writing, which a read-only file refuses.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UsageError(f"{label} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{label} is empty, but a .vmfb was expected") from None
