"""Another program that keeps a core busy while a network is tuned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Products of matrices that exceed the second-level cache take execution units, shared caches and memory from others.
_PROGRAM = """
import numpy
a = numpy.ones((1536, 1536), numpy.float32)
print(flush=True)
while True:
    a @ a
"""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@contextmanager
def busy_neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """Keep one core busy by a program of its own, from when it computes until the block ends."""
    settings = {**os.environ, **_ONE_THREAD}
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, env=settings) as program:
        try:
            if program.stdout is None or not program.stdout.readline():
                raise RuntimeError("the program that keeps a core busy ended")
            yield program
        finally:
            program.kill()
