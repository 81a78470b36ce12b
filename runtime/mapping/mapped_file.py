"""A file that is mapped, and whose pages may be replaced by memory of the process's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary, finalize

from sartor.errors import UsageError
from sartor.runtime.mapping import leases, pages
from sartor.runtime.mapping.reading import Reading


class MappedFile:
    """A file's content at an address where huge pages may lie.

    Sessions of one process that open the same unchanged file share one.

    Attributes:
        label: names it in errors.
        size: in bytes.
        address: of its first byte.
        own_bytes: how much of it is memory of this process.
        is_whole: whether all of it is, and was verified.
        moving: is held by who makes more of it so.
        reading: the thread that reads it ahead.
    """

    def __init__(self, path: Path, handle: int, verify: Verify) -> None:
        """Map an open file.

        Raises:
            OSError: if it cannot be mapped.
        """
        self.label = f"'{path}'"
        self._verify = verify
        self._failure = ""
        self.own_bytes = 0
        self.is_whole = False
        self._first = 0
        self.moving = threading.Lock()
        self._held = _Held(os.dup(handle))
        # No ``__del__``, which is called while ``_OPEN`` still gives the mapping to other threads. At the process's end
        # the system gives all back.
        finalize(self, self._held.release).atexit = False
        self._state = _state(handle)
        self.size, _ = self._state
        self.address = self._held.reserve(self.size)
        pages.map_file(self.address, self.size, handle)
        self.reading = Reading(self.address, self.size, self)

    @property
    def content(self) -> memoryview:
        """The bytes, which stay where they are as long as there is a view of them."""
        return pages.view(self.address, self.size, self).toreadonly()

    @property
    def is_own(self) -> bool:
        """Whether all of it is memory of this process, so that what happens to the file does not matter."""
        return self.own_bytes >= self.size

    def move_first(self, begin: int) -> None:
        """Let moving begin with the huge page of the byte ``begin``, and go on from the file's beginning after its end;
        too late if it has begun."""
        if self.moving.acquire(blocking=False):
            try:
                self._first = self._first if self.own_bytes else begin // pages.HUGE * pages.HUGE
            finally:
                self.moving.release()

    def next_part(self, most: int) -> tuple[int, int]:
        """Begin and size of what is moved next, at most so many bytes."""
        behind = self.size - self._first
        if self.own_bytes < behind:
            return self._first + self.own_bytes, min(most, behind - self.own_bytes)
        return self.own_bytes - behind, min(most, self.size - self.own_bytes)

    def own(self, size: int) -> None:
        """Note that so many bytes more are memory of this process, those of ``next_part``.

        With all of them the file is closed, and its content verified, which later runs report.
        """
        self.own_bytes += size
        if self.is_own:
            self.close_file()
            try:
                self._verify(self.content, self.label)
            except UsageError as error:
                self._failure = str(error)
            self.is_whole = True

    @property
    def handle(self) -> int | None:
        """The open file; None once it is not needed any more."""
        return self._held.handle

    def check(self) -> None:
        """Make sure that what is mapped is what was opened.

        Raises:
            UsageError: if the file was written to or cut since, so that a run that reads it gives anything; or if it
                was found to be damaged.
        """
        if self._failure:
            raise UsageError(self._failure)
        if not self.is_own and not self._is_as_opened():
            raise UsageError(
                f"{self.label} was changed while it was open, so what runs is unknown: open it again; replace a file "
                "by renaming another to its name"
            )

    def _is_as_opened(self) -> bool:
        handle = self.handle
        try:
            if handle is None or _state(handle) == self._state:
                return True
        except OSError:
            pass
        # It may have been closed meanwhile, as all that was mapped has become the process's own.
        return self.is_own

    def keep_from_writers(self, *, waits: bool) -> None:
        """Note that somebody reads the file, until ``let_write``; others wait meanwhile, if ``waits``."""
        self._held.keep_from_writers(waits=waits)

    def let_write(self) -> None:
        """Let others write the file, if they had to wait, unless somebody else still reads it."""
        self._held.let_write()

    def forget_threads(self) -> None:
        """In a forked process: a thread that stayed with the parent may hold a lock."""
        self._held.forget_threads()

    def close_file(self) -> None:
        """Close the file; what is mapped stays."""
        self._held.close_file()


class _Held:
    """What a process holds for a mapping, and gives back once: an open file, its lease and addresses.

    A process that is forked meanwhile has the same open file, and so could end its parent's lease. It closes its own
    descriptor, which leaves the lease, and keeps its copy of what is mapped.

    Attributes:
        handle: the open file; None once it was closed.
    """

    def __init__(self, handle: int) -> None:
        self.handle: int | None = handle
        self._address = self._size = 0
        self._process = os.getpid()
        self._readers = 0
        self._counting = threading.Lock()

    def reserve(self, size: int) -> int:
        """The address of as many bytes, rounded to huge pages.

        Raises:
            OSError: if the process may not take as many addresses.
        """
        self._size = pages.rounded(size)
        self._address = pages.reserve(self._size)
        return self._address

    def keep_from_writers(self, *, waits: bool) -> None:
        """Count a reader, for whom writers wait if that is wanted and possible."""
        with self._counting:
            self._readers += 1
            if waits and (handle := self.handle) is not None and self._is_own:
                leases.take(handle)

    def forget_threads(self) -> None:
        """As of ``MappedFile``."""
        self._counting = threading.Lock()

    def let_write(self) -> None:
        """Forget a reader; after the last one let others write the file, if they had to wait for this process."""
        with self._counting:
            self._readers -= 1
            if self._readers <= 0 and (handle := self.handle) is not None and self._is_own:
                leases.give_back(handle)

    def close_file(self) -> None:
        """Close the file, if it is open."""
        handle, self.handle = self.handle, None
        if handle is not None:
            if self._is_own:
                # A process that was forked meanwhile has the file open too, and would keep the lease.
                leases.give_back(handle)
            os.close(handle)

    def release(self) -> None:
        """Give all back."""
        self.close_file()
        if self._address and self._is_own:
            pages.release(self._address, self._size)

    @property
    def _is_own(self) -> bool:
        return os.getpid() == self._process


Verify = Callable[[memoryview, str], None]
"""Compares a file's content with its checksums; raises ``UsageError``, with the label, if it is damaged."""


_OPEN: WeakValueDictionary[tuple[int, ...], MappedFile] = WeakValueDictionary()
_OPENING = threading.Lock()


def _map_anew() -> None:
    """In a forked process: threads that stayed with the parent may hold the lock, or be moving a mapping."""
    global _OPEN, _OPENING
    # What was moved and compared as a whole needs no thread any more, and its pages are shared.
    whole = {key: file for key, file in _OPEN.items() if file.is_whole}
    for file in whole.values():
        file.moving = threading.Lock()
        file.forget_threads()
    _OPEN, _OPENING = WeakValueDictionary(whole), threading.Lock()


os.register_at_fork(after_in_child=_map_anew)


def map_file(path: Path, handle: int, verify: Verify) -> MappedFile:
    """Map an open file and begin to read it, or return its mapping if this process has one.

    Raises:
        OSError: if it cannot be mapped.
    """
    result = os.fstat(handle)
    key = (result.st_dev, result.st_ino, result.st_ctime_ns, *_state(handle))
    with _OPENING:
        mapped = _OPEN.get(key)
        if mapped is None:
            mapped = _OPEN[key] = MappedFile(path, handle, verify)
        return mapped


def _state(handle: int) -> tuple[int, int]:
    """What changes when a file is written to or cut. Renaming and removing it change neither."""
    result = os.fstat(handle)
    return result.st_size, result.st_mtime_ns
