"""What a process loads to run a model."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import numpy, iree.runtime, sys
before = set(sys.modules)
import sartor
sartor.Session
print(*sorted(set(sys.modules) - before))
"""
# Python's own modules that a session needs beyond what numpy and IREE's runtime load. Each costs every program that
# runs a model, so that a new one needs a reason.
_STANDARD = {
    *("_ctypes", "_heapq", "_queue", "atexit", "binascii", "concurrent", "ctypes", "fcntl", "heapq", "mmap", "queue"),
    *("zipfile", "zlib"),
}
# What of this package only commands need.
_COMMANDS = {"benchmark", "dispatch_statistics", "memory", "module_facts", "output_error", "reference"}


def test_a_session_loads_nothing_of_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "sartor.runtime.session" in loaded
    own = {name for name in loaded if name.startswith("sartor.")} - {"sartor.errors", "sartor.runtime"}
    assert not {name for name in own if not name.startswith("sartor.runtime.")}
    assert not {name.split(".")[2] for name in own} & _COMMANDS
    others = {name.partition(".")[0] for name in loaded} - {"sartor"}
    assert not {name for name in others if not name.startswith("__editable__")} - _STANDARD
