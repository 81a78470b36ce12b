"""Calls of the system on memory that Python does not offer: mappings at chosen addresses, and moving their pages.

They exist on Linux; ``CAN_MOVE`` says whether they do. All let other threads run while they work.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from contextlib import suppress

HUGE = 2 << 20
"""Bytes of a huge page on x86-64 and AArch64."""
CAN_MOVE = sys.platform.startswith("linux") and hasattr(mmap, "MADV_HUGEPAGE")
"""Whether this system has the calls of this file."""
POPULATE_READ, POPULATE_WRITE = 22, 23
"""Advice that brings pages into memory and maps them; Linux has it since 5.14, Python does not name it."""

COLLAPSE = 25
"""Advice that moves what is present into huge pages; Linux has it since 6.1."""

# More than a module's code and directory, which end it, commonly take.
_END = 512 << 10

_FAILED = ctypes.c_void_p(-1).value
_NONE, _READ, _WRITE = 0, 1, 2
_PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 0x02, 0x10, 0x20, 0x4000
_MAY_MOVE, _TO_ADDRESS = 1, 2

_C = ctypes.CDLL(None, use_errno=True)
_SIZE, _ADDRESS, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
if CAN_MOVE:
    _C.mmap.argtypes = [_ADDRESS, _SIZE, _INT, _INT, _INT, ctypes.c_long]
    _C.mmap.restype = _ADDRESS
    _C.mremap.argtypes = [_ADDRESS, _SIZE, _SIZE, _INT, _ADDRESS]
    _C.mremap.restype = _ADDRESS
    _C.munmap.argtypes = [_ADDRESS, _SIZE]
    _C.mprotect.argtypes = [_ADDRESS, _SIZE, _INT]
    _C.madvise.argtypes = [_ADDRESS, _SIZE, _INT]


def rounded(size: int) -> int:
    """Bytes of the huge pages that ``size`` bytes take."""
    return -(-size // HUGE) * HUGE


def reserve(size: int) -> int:
    """The address of ``size`` bytes that nothing else is put at, where a huge page begins; ``size`` is whole ones.

    Raises:
        OSError: if the process may not take as many addresses.
    """
    begin = _mapped(None, size + HUGE, _NONE, _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1)
    address = rounded(begin)
    if address > begin:
        release(begin, address - begin)
    if begin + HUGE > address:
        release(address + size, begin + HUGE - address)
    return address


def map_file(address: int, size: int, handle: int) -> None:
    """Map the first ``size`` bytes of an open file at a reserved address, to be read from the beginning.

    File systems with large folios (ext4 since Linux 6.16, XFS) then read it from the disk into huge pages of the page
    cache, and ahead of what is touched.

    Raises:
        OSError: if the file cannot be mapped.
    """
    _mapped(address, size, _READ, _PRIVATE | _FIXED, handle)
    advise(address, size, mmap.MADV_HUGEPAGE)
    with suppress(OSError):
        # Loading needs the end before most of the rest. Asking so for the beginning, too, was slower: it was read in
        # small pages then, and what follows as well.
        os.posix_fadvise(handle, max(size - _END, 0), _END, os.POSIX_FADV_WILLNEED)
        # It doubles what is read ahead.
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)


def allocate(size: int) -> int:
    """The address of ``size`` bytes of memory, whole huge pages, that may be written.

    Raises:
        OSError: if there is no memory.
    """
    address = reserve(size)
    try:
        _mapped(address, size, _READ | _WRITE, _PRIVATE | _ANONYMOUS | _FIXED, -1)
    except OSError:
        release(address, size)
        raise
    advise(address, size, mmap.MADV_HUGEPAGE)
    return address


def move(source: int, target: int, size: int) -> None:
    """Move allocated memory to another address in place of what was there, and make it read-only.

    The pages are moved, not their content, and no thread sees the target without pages: one that reads it meanwhile
    waits.

    Raises:
        OSError: if the system refuses; the memory stays where it is.
    """
    _check(_C.mprotect(source, size, _READ))
    if _C.mremap(source, size, size, _MAY_MOVE | _TO_ADDRESS, target) == _FAILED:
        _check(-1)


def release(address: int, size: int) -> None:
    """Give memory back, whatever was mapped there."""
    _check(_C.munmap(address, size))


def advise(address: int, size: int, advice: int) -> bool:
    """Say how memory will be used; False if the system does not know the advice, or cannot follow it."""
    return bool(_C.madvise(address, size, advice) == 0)


def view(address: int, size: int, owner: object) -> memoryview:
    """The bytes at an address; ``owner`` lives as long as the view."""
    array = (ctypes.c_ubyte * size).from_address(address)
    array.owner = owner  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def _mapped(address: int | None, size: int, protection: int, flags: int, handle: int) -> int:
    mapped = _C.mmap(address, size, protection, flags, handle, 0)
    if mapped is None or mapped == _FAILED:
        _check(-1)
    return int(mapped)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
