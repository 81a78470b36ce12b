"""Opens a .vmfb without a device and without reading weights."""

from __future__ import annotations

import functools
import io
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import UsageError
from sartor.runtime.driver.archive import damage, is_archive
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, parse_module, reason

_ZIP_START = b"PK\x03\x04"
# Before each part: the lengths of its name and of what follows that, at the end.
_PART = struct.Struct("<26xHH")
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
        UsageError: if the file cannot be read, is not a complete IREE module, or is damaged. A mapped file is not read
            here, and so not compared with its checksums.
    """
    if isinstance(source, bytes):
        _check(source, _CONTENT)
        return Module(parse_module(source, _CONTENT), _CONTENT)
    label = f"'{source}'"
    content, is_read = _content(source, label, huge_pages=huge_pages)
    # IREE's files end with a zip directory. A file without it is truncated, even if its beginning can be parsed.
    if is_archive(content) and not zipfile.is_zipfile(source):
        raise UsageError(f"{label} is truncated; compile it again")
    _check_program(content, label)
    return Module(parse_module(content, label), label)


def _check_program(content: mmap.mmap, label: str) -> None:
    """Compare the first part of a file with its checksum: what IREE parses when it opens the file, weights aside.

    IREE's parser may crash on a damaged one.
    """
    if content[: len(_ZIP_START)] != _ZIP_START:
        return
    try:
        with zipfile.ZipFile(content) as archive:  # type: ignore[call-overload]  # mapped memory is read like a file
            first = archive.infolist()[0]
        begin = (
            first.header_offset
            + _PART.size
            + sum(_PART.unpack(content[first.header_offset : first.header_offset + _PART.size]))
        )
        is_sound = zlib.crc32(content[begin : begin + first.file_size]) == first.CRC
    except (zipfile.BadZipFile, ValueError, IndexError, NotImplementedError, struct.error):
        is_sound = False
    if not is_sound:
        raise UsageError(f"{label} is damaged; compile it again")


def _content(path: Path, label: str, *, huge_pages: bool) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if huge_pages and _gains_by_huge_pages(size):
                # Memory may be too small; a mapped file needs none.
                with suppress(OSError):
                    return _read(file, size), True
            # IREE's own mmap opens the file for writing, which fails on a read-only file.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), False
    except OSError as error:
        raise UsageError(f"{label} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{label} is empty, but a .vmfb was expected") from None


def beside(path: Path, name: str) -> Path:
    """The file of a name that belongs to a .vmfb: beside it, or if it is a link beside the file that it leads to."""
    near, far = path.parent / name, path.resolve().parent / name
    return far if far.is_file() and not near.exists() else near


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
