"""Opens a .vmfb without a device and without reading weights."""

from __future__ import annotations

import functools
import io
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import UsageError
from sartor.runtime.driver.archive import damage, is_archive, part_of
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, parse_module, reason
from sartor.runtime.files.checksums import PART as CHECKSUMS
from sartor.runtime.files.checksums import read_checksums
from sartor.runtime.files.regular_files import check_regular

_CONTENT = "the given content"
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# About the memory that a processor's translation buffers cover with pages of 4 KiB; smaller modules gain nothing.
_REACH_BYTES = 8 << 20


@dataclass(frozen=True)
class Module:
    """An opened .vmfb; ``label`` names it in errors, ``content`` is what it was parsed from."""

    native: Any
    label: str
    content: bytes | mmap.mmap

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

    def part(self, name: str) -> Module:
        """The module that is a part of the file, as ``runtime/segments/packing.py`` packs it.

        Raises:
            UsageError: if there is none, or it is damaged.
        """
        label = f"'{name}' in {self.label}"
        found = part_of(self.content, name) if is_archive(self.content) else None
        if found is None:
            raise UsageError(f"{self.label} has no part '{name}', which its manifest names; compile it again")
        content = bytes(found) if isinstance(self.content, bytes) else found
        return Module(parse_module(content, label), label, self.content)

    @property
    def checksums(self) -> dict[str, str]:
        """Checksums of the weight files that the module needs, by scope; none if an earlier version compiled it."""
        return read_checksums(part_of(self.content, CHECKSUMS)) if is_archive(self.content) else {}

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
        UsageError: if the file cannot be read, is not a complete IREE module, or is damaged. Of a mapped file only
            the program is compared with its checksum, as weights are not read here.
    """
    if isinstance(source, bytes):
        _check(source, _CONTENT)
        return Module(parse_module(source, _CONTENT), _CONTENT, source)
    label = f"'{source}'"
    content, is_read = _content(source, label, huge_pages=huge_pages)
    _check(content, label, whole=is_read or (huge_pages and len(content) <= _REACH_BYTES))
    return Module(parse_module(content, label), label, content)


def check_module(path: Path) -> None:
    """Read a .vmfb whole and compare it with its checksums.

    Raises:
        UsageError: if it is damaged, or no IREE module, or has no checksums.
    """
    content, _ = _content(path, f"'{path}'", huge_pages=False)
    _check(content, f"'{path}'")
    parse_module(content, f"'{path}'")
    if not is_archive(content):
        raise UsageError(f"'{path}' has no checksums, as it was compiled with --iree-vm-emit-polyglot-zip=false")


def _check(content: bytes | mmap.mmap, label: str, *, whole: bool = True) -> None:
    """Compare a file with its checksums, all of it or what IREE parses, whose parser may crash on a damaged one."""
    found = damage(content, whole=whole) if is_archive(content) else None
    if found is not None:
        raise UsageError(f"{label} is damaged, {found}; copy or compile it again")


def _content(path: Path, label: str, *, huge_pages: bool) -> tuple[mmap.mmap, bool]:
    """The content of a file, and whether it was read; else it is mapped."""
    try:
        check_regular(path)
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
