"""Opens a .vmfb without a device and without reading weights."""

from __future__ import annotations

import functools
import io
import mmap
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import UsageError
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, parse_module, reason

_ZIP_START = b"PK\x03\x04"
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# About the memory that a processor's translation buffers cover with pages of 4 KiB; smaller modules gain nothing.
_REACH_BYTES = 8 << 20


@dataclass(frozen=True)
class Module:
    """An opened .vmfb; ``label`` names it in errors."""

    native: Any
    label: str

    @property
    def functions(self) -> list[str]:
        """Names of the exported functions, in the module's order.

        Raises:
            UsageError: if they are not text.
        """
        with self._reading():
            return list(self.native.function_names)

    def reflection(self, function: str) -> dict[str, str]:
        """Reflection attributes of an exported function.

        Raises:
            UsageError: if they are not text.
        """
        with self._reading():
            return dict(self.native.lookup_function(function).reflection)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except NATIVE_ERRORS as error:
            raise UsageError(f"{self.label} is damaged ({reason(error)}); compile it again") from None


def open_module(source: Path | bytes, *, huge_pages: bool = False) -> Module:
    """Open a .vmfb: a path is memory-mapped, bytes are copied to aligned memory.

    Args:
        source: path or content.
        huge_pages: whether a large file is read into huge pages instead of mapped, if the system has them.

    Raises:
        UsageError: if the file cannot be read, or is not a complete IREE module.
    """
    if isinstance(source, bytes):
        return Module(parse_module(source, "the given content"), "the given content")
    label = f"'{source}'"
    content = _content(source, label, huge_pages=huge_pages)
    # IREE's files end with a zip directory. A file without it is truncated, even if its beginning can be parsed.
    if content[: len(_ZIP_START)] == _ZIP_START and not zipfile.is_zipfile(source):
        raise UsageError(f"{label} is truncated; compile it again")
    return Module(parse_module(content, label), label)


def _content(path: Path, label: str, *, huge_pages: bool) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if huge_pages and _gains_by_huge_pages(size):
                # Memory may be too small; a mapped file needs none.
                with suppress(OSError):
                    return _read(file, size)
            # IREE's own mmap opens the file for writing, which fails on a read-only file.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UsageError(f"{label} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{label} is empty, but a .vmfb was expected") from None


def wants_huge_pages(path: Path) -> bool:
    """Whether a file is large enough to be read into huge pages, and the system has them."""
    return path.is_file() and _gains_by_huge_pages(path.stat().st_size)


def _gains_by_huge_pages(size: int) -> bool:
    return size > _REACH_BYTES and has_huge_pages()


@functools.cache
def has_huge_pages() -> bool:
    """Whether this system provides huge pages for memory that requests them."""
    try:
        return hasattr(mmap, "MADV_HUGEPAGE") and "[never]" not in _HUGE_PAGES.read_text(encoding="ascii")
    except OSError:
        return False


def _read(file: io.BufferedReader, size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    with memoryview(memory) as view:
        start = 0
        while count := file.readinto(view[start:]):
            start += count
    return memory
