"""Memory for activations."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sartor.runtime.mapping.heap import extend_heap

_CODE = """
import ctypes, resource, sys
from sartor.runtime.mapping.heap import extend_heap

if sys.argv[1] == "extended":
    assert extend_heap()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def missing():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = library.malloc(16 << 20)
    ctypes.memset(block, 1, 16 << 20)
    library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(missing(), missing())
"""


def _missing_pages(how: str) -> tuple[int, ...]:
    done = subprocess.run([sys.executable, "-c", _CODE, how], capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


def test_the_first_large_blocks_find_their_pages_sooner() -> None:
    if not extend_heap():
        pytest.skip("this C library or system has no such heap")
    plain, extended = _missing_pages("plain"), _missing_pages("extended")
    # 16 MiB are 4096 small pages. At most two huge pages' worth of them lie at the borders.
    assert plain[0] > 4000
    assert extended[0] < 1500
    assert extended[1] < 100
