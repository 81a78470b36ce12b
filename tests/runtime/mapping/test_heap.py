"""Memory for activations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sartor.runtime.mapping.heap import extend_heap

_CODE = """
import ctypes, resource, sys, threading
from sartor.runtime.mapping.heap import extend_heap

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

size = int(sys.argv[2]) << 20

def missing():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = library.malloc(size)
    ctypes.memset(block, 1, size)
    library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def work():
    if "extended" in sys.argv[1]:
        extend_heap().bring_in()
    print(missing(), missing())

if "thread" in sys.argv[1]:
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
else:
    work()
"""


def _missing_pages(how: str, mebibytes: int = 6, **environment: str) -> tuple[int, ...]:
    command = [sys.executable, "-c", _CODE, how, str(mebibytes)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


def _keeps_large_blocks() -> bool:
    """Whether this C library lets its heap have blocks of any size; in a process of its own, which it changes."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "1"


_ASK = """
import ctypes
from sartor.runtime.mapping.heap import LARGEST
library = ctypes.CDLL(None)
print(library.mallopt(-3, LARGEST) if hasattr(library, "gnu_get_libc_version") else 0)
"""


def test_the_first_large_blocks_find_their_pages_sooner() -> None:
    if extend_heap() is None:
        pytest.skip("this C library or system has no such heap")
    plain, extended = _missing_pages("plain"), _missing_pages("extended")
    # 6 MiB are 1536 small pages, of which the end of the heap may have some.
    assert plain[0] > 1500
    assert plain[1] > 1400
    assert extended[0] < 100
    assert extended[1] < 100


def test_blocks_that_the_library_would_give_back_keep_their_pages() -> None:
    if extend_heap() is None or not _keeps_large_blocks():
        pytest.skip("this C library or system has no such heap")
    plain, extended = _missing_pages("plain", 48), _missing_pages("extended", 48)
    assert plain[1] > 12_000
    assert extended[1] < 100


def test_blocks_of_a_thread_find_their_pages_as_well() -> None:
    if extend_heap() is None or not _keeps_large_blocks():
        pytest.skip("this C library or system has no such heap")
    plain, extended = _missing_pages("plain_thread"), _missing_pages("extended_thread")
    assert plain[0] > 1500
    assert extended[0] < 100
    assert extended[1] < 100
    assert _missing_pages("extended_thread", 48)[1] < 100


def test_what_the_library_was_told_by_the_environment_stays() -> None:
    if extend_heap() is None:
        pytest.skip("this C library or system has no such heap")
    assert _missing_pages("extended", 48, MALLOC_MMAP_THRESHOLD_=str(8 << 20))[1] > 12_000
    assert _missing_pages("extended", 48, GLIBC_TUNABLES=f"glibc.malloc.mmap_threshold={8 << 20}")[1] > 12_000


_BY_PAGES = """
import ctypes, mmap, os
from sartor.runtime.mapping.heap import extend_heap, take_by_pages

extend_heap().bring_in()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
size, page = 6 << 20, mmap.PAGESIZE
block = library.malloc(size)
ctypes.memset(block, 1, size)

def present():
    with open("/proc/self/pagemap", "rb") as found:
        first, last = block // page + 1, (block + size) // page - 1
        found.seek(8 * first)
        entries = memoryview(found.read(8 * (last - first))).cast("Q")
        return sum(entry >> 63 for entry in entries)

counts = [present()]
take_by_pages(block, size)
counts.append(present())
# As of a thread that is late.
extend_heap().bring_in()
ctypes.memset(block + size // 2, 1, 3 * page)
print(*counts, present())
"""


def test_a_block_that_fills_by_and_by_takes_what_is_written() -> None:
    if extend_heap() is None:
        pytest.skip("this C library or system has no such heap")
    done = subprocess.run([sys.executable, "-c", _BY_PAGES], capture_output=True, text=True, check=True)
    whole, none, few = map(int, done.stdout.split())
    assert whole > 1400
    assert none == 0
    assert few in (3, 4)


_HUGE = """
import ctypes, re
from sartor.runtime.mapping.heap import extend_heap, take_by_pages, take_huge_pages

extend_heap().bring_in()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
size = 8 << 20
block = library.malloc(size)
take_by_pages(block, size)
content = (ctypes.c_ubyte * (size // 2)).from_address(block)
content[:] = bytes(range(256)) * (size // 512)

def huge():
    count = 0
    for line in open("/proc/self/smaps"):
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            begin, end = (int(part, 16) for part in found.groups())
        elif line.startswith("AnonHugePages:") and block <= begin and end <= block + size:
            count += int(line.split()[1])
    return count

before = huge()
take_huge_pages(block, size)
print(before, huge(), int(bytes(content) == bytes(range(256)) * (size // 512)))
"""


def test_a_block_that_is_half_full_moves_into_huge_pages_with_what_it_holds() -> None:
    if extend_heap() is None:
        pytest.skip("this C library or system has no such heap")
    done = subprocess.run([sys.executable, "-c", _HUGE], capture_output=True, text=True, check=True)
    before, after, is_kept = map(int, done.stdout.split())
    assert is_kept
    if not after:
        pytest.skip("this system moves nothing into huge pages")
    assert before == 0
    assert after >= 2048
