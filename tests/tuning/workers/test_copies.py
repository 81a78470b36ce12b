"""Workers that are copies of a process which has imported what they need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tuning.workers import copied_program
from tests.tuning.workers.running import gone

ROOT = Path(__file__).parents[3]


def copying(what: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    command = [sys.executable, "-m", copied_program.__name__, what]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("what", ["pools", "ends", "ignores", "threads"])
def test_copies_do_what_programs_do(what: str) -> None:
    done = copying(what)
    assert done.returncode == 0, done.stderr
    # What this process had not written yet a copy does not write again.
    assert done.stdout.count("not yet written") == (what == "pools")


def test_copies_that_nobody_takes_end_with_their_parent() -> None:
    pids = [int(pid) for pid in copying("nobody").stdout.split()]
    assert len(pids) == 2
    assert all(map(gone, pids))
