"""Reading a mapped file ahead of what uses it, in a thread.

Files hold weights in the order of execution, so that reading them from the beginning keeps ahead of the first inference
(NNV12, section 3.1: reading and executing as a pipeline).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from sartor.runtime.mapping import pages
from sartor.runtime.mapping.background import Background

# What is brought in by one call. Others that need the process's list of mappings wait for its end, so that calls that
# take more than a quarter of a millisecond are made smaller; but after each the thread needs the interpreter, as a load
# does.
_LEAST, _MOST = 4 << 20, 256 << 20
_LONG_NS = 250_000


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
        self._thread = Background(partial(self._read, address, size, owner))

    def stop(self) -> None:
        """Do no more; returns when nothing is done."""
        self._stopped = True
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.wait()

    def _read(self, address: int, size: int, owner: object) -> None:
        begin, length = 0, _LEAST
        while begin < size and not self._stopped:
            part = min(length, size - begin)
            with step(self.steps, "read", part):
                is_read = pages.advise(address + begin, part, pages.POPULATE_READ)
            if not is_read:
                return
            begin += part
            last = self.steps[-1]
            length = _LEAST if last.end - last.begin > _LONG_NS else min(2 * length, _MOST)
