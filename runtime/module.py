"""Opens a .vmfb without a device and without reading weights."""

from __future__ import annotations

import functools
import io
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sartor.errors import UsageError
from sartor.runtime.driver.archive import Content, damage, foreign_part, is_archive, part_of
from sartor.runtime.driver.iree_runtime import NATIVE_ERRORS, parse_module, reason
from sartor.runtime.files.checksums import PART as CHECKSUMS
from sartor.runtime.files.checksums import check_samples, check_whole, read_checksums
from sartor.runtime.files.regular_files import check_regular
from sartor.runtime.mapping import leases, pages
from sartor.runtime.mapping.leases import Lease
from sartor.runtime.mapping.mapped_file import MappedFile, Verify, map_file

_CONTENT = "the given content"
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# Comparing a smaller file with its checksums before it runs takes no longer than starting the threads that read ahead.
_SMALL_BYTES = 1 << 20


class Module(NamedTuple):
    """An opened .vmfb.

    Attributes:
        native: what IREE parsed.
        label: names it in errors.
        content: what it was parsed from.
        mapped: the file, if it is read while the module runs.
    """

    native: Any
    label: str
    content: Content
    mapped: MappedFile | None = None

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
        part_content = part_of(self.content, name) if is_archive(self.content) else None
        if part_content is None:
            raise UsageError(f"{self.label} has no part '{name}', which its manifest names; compile it again")
        content = bytes(part_content) if isinstance(self.content, bytes) else part_content
        check_content(content, label, whole=False)
        return Module(parse_module(content, label), label, self.content, self.mapped)

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


def open_module(source: Path | bytes) -> Module:
    """Open a .vmfb to look at it: a path is memory-mapped, bytes are copied to aligned memory.

    Raises:
        UsageError: if the file cannot be read, is not a complete IREE module, or is damaged. Of a mapped file only
            the program is compared with its checksum, as weights are not read here.
    """
    if isinstance(source, bytes):
        check_content(source, _CONTENT)
        return Module(parse_module(source, _CONTENT), _CONTENT, source)
    with _opened(source) as (label, file, size):
        # IREE's own mmap opens the file for writing, which fails on a read-only file.
        content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    check_content(content, label, whole=False)
    return Module(parse_module(content, label), label, content)


def load_module(source: Path | bytes, *, huge_pages: bool) -> Module:
    """Open a .vmfb to run it.

    A file that is larger than what processors find without searching is mapped such that it can be read while the
    module runs, and moved to huge pages if these are wanted and the system has them.

    Args:
        source: path or content.
        huge_pages: whether the content shall become memory of the process, in huge pages if it is large.

    Raises:
        UsageError: as ``open_module``. A small file is compared with its checksums as a whole, if ``huge_pages``.
    """
    if isinstance(source, bytes):
        return open_module(source)
    with _opened(source) as (label, file, size):
        content, mapped = _loaded(source, file, size, check_content, huge_pages=huge_pages)
        check_content(content, label, whole=huge_pages and mapped is None, file=file)
    return Module(parse_module(content, label), label, content, mapped)


def load_weights(
    path: Path, scope: str, known: Mapping[str, str], *, huge_pages: bool
) -> tuple[memoryview, MappedFile | None]:
    """The content of a weight file, brought into memory as ``load_module`` does.

    Args:
        path: of the file.
        scope: whose weights they are.
        known: the checksums that the module has of its weights.
        huge_pages: as for ``load_module``.

    Raises:
        UsageError: if it cannot be read, or is empty, or samples of it are not those of the module's weights. A file
            that is mapped is compared as a whole once it was moved.
    """
    verify = functools.partial(check_whole, scope=scope, known=known)
    with _opened(path) as (label, file, size):
        check_samples(path, file.fileno(), scope, known)
        content, mapped = _loaded(path, file, size, verify, huge_pages=huge_pages)
    if huge_pages and mapped is None and size > _SMALL_BYTES:
        verify(memoryview(content), label)
    return memoryview(content), mapped


def _loaded(
    path: Path, file: io.FileIO, size: int, verify: Verify, *, huge_pages: bool
) -> tuple[mmap.mmap | memoryview, MappedFile | None]:
    """The content of a file, and its mapping if that stays in use while it runs."""
    if size <= _SMALL_BYTES:
        # Read, it is not changed by who writes the file later.
        return _read(file, size), None
    if not pages.CAN_MOVE:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), None
    if huge_pages and leases.take(file.fileno()) is Lease.WRITTEN:
        # It might change at any time.
        return _read(file, size), None
    mapped = map_file(path, file.fileno(), verify)
    mapped.keep_from_writers(waits=huge_pages)
    return mapped.content, mapped


@contextmanager
def _opened(path: Path) -> Iterator[tuple[str, io.FileIO, int]]:
    """How errors name a file, the file, open for reading, and its size."""
    label = f"'{path}'"
    try:
        check_regular(path)
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise UsageError(f"{label} is empty")
            yield label, file, size
    except OSError as error:
        raise UsageError(f"{label} cannot be read: {error.strerror}") from None


def check_module(path: Path) -> None:
    """Read a .vmfb whole and compare it with its checksums.

    Raises:
        UsageError: if it is damaged, or no IREE module, or has no checksums.
    """
    module = open_module(path)
    check_content(module.content, module.label)
    if not is_archive(module.content):
        raise UsageError(f"'{path}' has no checksums, as it was compiled with --iree-vm-emit-polyglot-zip=false")


def check_content(content: Content, label: str, *, whole: bool = True, file: io.FileIO | None = None) -> None:
    """Compare a file with its checksums, all of it or what IREE parses, whose parser may crash on a damaged one.

    Args:
        content: of the file.
        label: names it.
        whole: whether all of it is compared.
        file: the open file, if its end is better read than touched: where memory is mapped, the system reads much
            around what is touched, although the beginning is needed first.

    Raises:
        UsageError: if it is damaged, or an archive of something else.
    """
    damaged = damage(content, whole=whole, file=file) if is_archive(content) else None
    if damaged is not None:
        if (name := foreign_part(content, file)) is not None:
            raise UsageError(f"{label} is not an IREE module (.vmfb) but an archive of something else, as of '{name}'")
        raise UsageError(f"{label} is damaged, {damaged}; copy or compile it again")


def beside(path: Path, name: str) -> Path:
    """The file of a name that belongs to a .vmfb: beside it, or if it is a link beside the file that it leads to."""
    near, far = path.parent / name, path.resolve().parent / name
    return far if far.is_file() and not near.exists() else near


def wants_huge_pages(path: Path) -> bool:
    """Whether a file is large enough to be moved to huge pages, and the system has them."""
    return path.is_file() and path.stat().st_size > _SMALL_BYTES and has_huge_pages()


@functools.cache
def has_huge_pages() -> bool:
    """Whether this system provides huge pages for memory that requests them."""
    try:
        return hasattr(mmap, "MADV_HUGEPAGE") and b"[never]" not in _HUGE_PAGES.read_bytes()
    except OSError:
        return False


def _read(file: io.FileIO, size: int) -> mmap.mmap:
    """The content of a file, in huge pages if there are any."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if has_huge_pages():
        memory.madvise(mmap.MADV_HUGEPAGE)
    with memoryview(memory) as view:
        start = 0
        while count := file.readinto(view[start:]):
            start += count
    return memory
