"""Memory for activations: the C library's heap, in huge pages.

The runtime takes memory for activations anew in each inference. The GNU C library maps large blocks by themselves and
gives them back, until it has seen one freed, and blocks of more than 32 MiB always: so inferences find all their pages
missing, a third of the time of a small network, and half of that of a large one. Here it is told to take larger blocks
from the heap as well, and the heap is extended in advance. A thread brings in its beginning while the model is loaded;
nothing of the rest is taken until it is used. Whoever has told the library otherwise keeps the say.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import re
import threading

from sartor.runtime.mapping import pages

LARGEST = 256 << 20
"""Bytes from which a block is mapped by itself, and given back. Up to twice as much stays at the end of the heap while
nothing uses it, the C library's own ratio."""

# Bytes by which the heap is extended. Their pages are huge ones: large images take a quarter longer in small pages.
_EXTENSION = 128 << 20
# The same of a thread that is not the process's first. It has heaps of 64 MiB each (malloc/arena.c, HEAP_MAX_SIZE);
# blocks that exceed these are mapped by themselves.
_OF_THREAD = 32 << 20

# Bytes of the largest block from which the C library learns (malloc/malloc.c, DEFAULT_MMAP_THRESHOLD_MAX), with its own
# fields.
_LEARNT = (32 << 20) - (64 << 10)
# Of mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_TOLD = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
_TOLD_TOGETHER = re.compile(r"\bglibc\.malloc\.(mmap_|trim_|top_pad)")

# As much as the activations of common networks for images take.
_BROUGHT_IN = 8 << 20
# What the C library puts before a block, at most.
_HEADER = 32
# Addresses of blocks that have the pages alone that are written, whose beginning no thread brings in.
_BY_PAGES = set[tuple[int, int]]()
_CHANGING = threading.Lock()


class NewHeap:
    """The new part of the heap, which begins at a huge page.

    Attributes:
        begin: its address.
        is_present: whether its first pages are there.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.is_present = False

    def bring_in(self) -> None:
        """Make its first pages present, which changes nothing in them, whoever uses them by now."""
        for address in range(self.begin, self.begin + _BROUGHT_IN, pages.HUGE):
            with _CHANGING:
                if not any(begin < address + pages.HUGE and address < end for begin, end in _BY_PAGES):
                    pages.advise(address, pages.HUGE, pages.POPULATE_WRITE)
        self.is_present = True


@functools.cache
def extend_heap() -> NewHeap | None:
    """Extend the heap of the calling thread, once; None if this is not the GNU C library, or there was no memory."""
    library = ctypes.CDLL(None)
    if not pages.CAN_MOVE or not hasattr(library, "gnu_get_libc_version"):
        return None
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    size = _LEARNT
    if _keeps_large_blocks(library):
        size = _EXTENSION if threading.get_native_id() == os.getpid() else _OF_THREAD
    block = library.malloc(size)
    if block is None:
        return None
    begin = pages.rounded(block)
    pages.advise(begin, (block + size - begin) // pages.HUGE * pages.HUGE, mmap.MADV_HUGEPAGE)
    library.free(block)
    # What lies before the first huge page is kept, unused: who got it would find small pages missing.
    if begin - block > _HEADER:
        library.malloc(begin - block - _HEADER)
    return NewHeap(begin)


def _keeps_large_blocks(library: ctypes.CDLL) -> bool:
    """Let the heap have and keep blocks of up to ``LARGEST`` bytes; else those from which the library learns."""
    is_told = any(name in os.environ for name in _TOLD) or _TOLD_TOGETHER.search(os.environ.get("GLIBC_TUNABLES", ""))
    # Versions before 2.35 refuse as much.
    if not is_told and library.mallopt(_MMAP_THRESHOLD, LARGEST) and library.mallopt(_TRIM_THRESHOLD, 2 * LARGEST):
        return True
    library.free(library.malloc(_LEARNT))
    return False


def take_by_pages(address: int, size: int) -> None:
    """Let a block of the heap, to which nothing was written that counts, have the pages alone that are written.

    In huge pages the first bytes of a block that fills by and by would take as much memory as a whole one. What an
    earlier owner left in it is given back, where the system does so.
    """
    begin, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if pages.CAN_MOVE and begin < end:
        # A thread may be bringing the heap in.
        with _CHANGING:
            _BY_PAGES.add((begin, end))
            pages.advise(begin, end - begin, mmap.MADV_NOHUGEPAGE)
            pages.advise(begin, end - begin, mmap.MADV_DONTNEED)


def take_huge_pages(address: int, size: int) -> None:
    """Move a block of the heap, much of which is written by now, into huge pages, from which it is read faster."""
    begin, end = pages.rounded(address), (address + size) // pages.HUGE * pages.HUGE
    if pages.CAN_MOVE and begin < end:
        pages.advise(begin, end - begin, mmap.MADV_HUGEPAGE)
        pages.advise(begin, end - begin, pages.COLLAPSE)


def trim_heap() -> None:
    """Give the system back what is free inside the heap, if this is the GNU C library: it gives back the end only."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
