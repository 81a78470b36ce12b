"""The neighbour computes while its block lasts, and not after it."""

from __future__ import annotations

import resource
import subprocess

import pytest

from benchmarks.record.neighbour import busy_neighbour


def test_the_neighbour_computes_until_the_block_ends() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with busy_neighbour() as program, pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.5)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert program.returncode is not None
    assert after.ru_utime - before.ru_utime > 0.05
