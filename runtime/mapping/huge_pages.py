"""Moving a mapped file to huge pages while it is in use.

A block of the file is read into huge pages at another address, and these are then moved over the block's place in the
mapping. Content and addresses stay the same, so a kernel that reads the block goes on as if nothing had happened, and
the next one finds it with fewer translations. A file that is longer than the processor's translation buffers reach runs
faster then: its weights are read once per inference, each page of 4 KiB by a translation of its own.
"""

from __future__ import annotations

import os

from sartor.errors import UsageError
from sartor.runtime.mapping import pages
from sartor.runtime.mapping.free_memory import free_bytes
from sartor.runtime.mapping.mapped_file import MappedFile
from sartor.runtime.mapping.notes import note

BLOCK = 4 * pages.HUGE
"""Bytes that are moved at once, while nothing else can change the process's mappings."""
# A process that takes the last memory is the first that the system ends.
_LEFT_FREE = 64 << 20


def move_to_huge_pages(file: MappedFile) -> bool:
    """Make the next block of a mapping the process's own memory, in huge pages; False if there is none left to move.

    What is short of memory stays mapped, which is right too, and slower.

    What the file has become since it was opened, if it was changed, is not taken; runs report it.
    """
    handle = file.handle
    if handle is None or file.is_own:
        return False
    begin, length = file.next_part(BLOCK)
    size = pages.rounded(length)
    try:
        free = free_bytes()
        if free is not None and free < size + _LEFT_FREE:
            note(__name__, "%s stays mapped: only %d MiB of memory are free", file.label, free >> 20)
            return False
        block = pages.allocate(size)
        try:
            _read(handle, block, begin, length, file)
            pages.move(block, file.address + begin, size)
        except BaseException:
            pages.release(block, size)
            raise
    except UsageError:
        return False
    except OSError as error:
        note(__name__, "%s stays mapped: %s", file.label, error.strerror)
        return False
    file.own(length)
    return True


def _read(handle: int, address: int, begin: int, size: int, file: MappedFile) -> None:
    """Read a part of a file to an address."""
    with pages.view(address, size, None) as target:
        done = 0
        while done < size:
            count = os.preadv(handle, [target[done:]], begin + done)
            if count == 0:
                raise UsageError(f"{file.label} has become shorter")
            done += count
    file.check()
