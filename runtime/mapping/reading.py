"""Reading a mapped file ahead of what uses it, in a thread.

Files hold weights in the order of execution, so that reading them from the beginning keeps ahead of the first inference
(NNV12, section 3.1: reading and executing as a pipeline).
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sartor.runtime.mapping import pages

# What is brought in by one call: others that need the process's list of mappings wait for its end.
_AT_ONCE = 4 << 20


class Step(NamedTuple):
    """What a thread did: ``read`` or ``move``, of how many bytes, from and until when by ``time.perf_counter_ns``."""

    kind: str
    begin: int
    end: int
    size: int


@contextmanager
def step(steps: list[Step], kind: str, size: int) -> Iterator[None]:
    """Note how long something takes."""
    begin = time.perf_counter_ns()
    yield
    steps.append(Step(kind, begin, time.perf_counter_ns(), size))


class Reading:
    """A thread that brings mapped memory in; ``owner`` keeps it mapped until then. ``steps`` says what it has done."""

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.steps: list[Step] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._read, args=(address, size, owner), name="sartor-read", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Do no more; returns when nothing is done."""
        self._stopped = True
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _read(self, address: int, size: int, owner: object) -> None:
        with step(self.steps, "read", 0):
            # All that the disk has to do is asked for, and then waited for in order.
            pages.advise(address, size, mmap.MADV_WILLNEED)
        for begin in range(0, size, _AT_ONCE):
            length = min(_AT_ONCE, size - begin)
            with step(self.steps, "read", length):
                is_read = not self._stopped and pages.advise(address + begin, length, pages.POPULATE_READ)
            if not is_read:
                return
