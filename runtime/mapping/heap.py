"""Memory for activations: the C library's heap, in huge pages.

The runtime takes memory for activations anew in each inference. The GNU C library maps large blocks by themselves and
gives them back, until it has seen one freed: so the first two inferences find all their pages missing, a third of the
time of a small network. Here one is freed before the first inference, without being used, and the heap is extended by
its size in advance. Nothing is taken until it is used, then as huge pages: four of them instead of two thousand.
"""

from __future__ import annotations

import ctypes
import functools
import mmap

from sartor.runtime.mapping import pages

# The largest block from which the C library learns (malloc/malloc.c, DEFAULT_MMAP_THRESHOLD_MAX), with its own fields.
_LARGEST = (32 << 20) - (64 << 10)


@functools.cache
def extend_heap() -> bool:
    """Extend the heap of the calling thread once; returns whether this is the GNU C library and there was memory."""
    library = ctypes.CDLL(None)
    if not pages.CAN_MOVE or not hasattr(library, "gnu_get_libc_version"):
        return False
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    library.free(library.malloc(_LARGEST))
    block = library.malloc(_LARGEST)
    if block is None:
        return False
    begin = pages.rounded(block)
    advised = pages.advise(begin, (block + _LARGEST - begin) // pages.HUGE * pages.HUGE, mmap.MADV_HUGEPAGE)
    library.free(block)
    return advised
