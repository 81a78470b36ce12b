"""The solver of programs leaves the standard output to results."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from sartor.tuning.selection.programming.highs_solver import HighsSolver
print("before")
HighsSolver([True, False], [])
print("after", flush=True)
"""


def test_the_solver_writes_nothing_to_the_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "before\nafter\n"


def test_the_solver_works_without_a_standard_output() -> None:
    program = f"import os\nos.close(1)\n{_PROGRAM.replace('print', 'str')}".replace(", flush=True", "")
    subprocess.run([sys.executable, "-c", program], check=True)
