"""What a process loads to run a model."""

from __future__ import annotations

import os
import subprocess
import sys

_CODE = """
import numpy, sys
before = set(sys.modules)
import sartor
sartor.Session
print(*sorted(set(sys.modules) - before))
"""
# Python's own modules that a session needs beyond what numpy loads. Each costs every program that runs a model, so that
# a new one needs a reason.
_STANDARD = {
    *("_json", "_string", "atexit", "copy", "ctypes", "_ctypes", "dataclasses", "fcntl", "json", "mmap", "signal"),
    *("threading", "zlib"),
}
# The native library alone, and not the package that wraps it for others.
_IREE = {"iree", "iree._runtime", "iree._runtime.libs", "iree._runtime_libs", "iree._runtime_libs._runtime"}
# What of this package only commands need.
_COMMANDS = {"benchmark", "dispatch_statistics", "memory", "module_facts", "output_error", "reference"}


def test_a_session_loads_nothing_of_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "sartor.runtime.session" in loaded
    own = {name for name in loaded if name.startswith("sartor.")} - {"sartor.errors", "sartor.runtime"}
    assert not {name for name in own if not name.startswith("sartor.runtime.")}
    assert not {name.split(".")[2] for name in own} & _COMMANDS
    assert {name for name in loaded if name.partition(".")[0] == "iree"} == _IREE
    others = {name.partition(".")[0] for name in loaded} - {"sartor", "iree"}
    assert not {name for name in others if not name.startswith("__editable__")} - _STANDARD


def test_the_package_around_the_library_can_be_used_beside_a_session() -> None:
    code = "import sartor; sartor.Session; import iree.runtime; from iree._runtime.libs import _runtime\n"
    code += "print(iree.runtime.VmInstance is _runtime.VmInstance)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_flags_of_iree_in_the_environment_are_left_to_its_package() -> None:
    code = "import sys, sartor; sartor.Session; print('iree.runtime.flags' in sys.modules)"
    environment = {**os.environ, "IREE_PY_RUNTIME_FLAGS": "--task_topology_group_count=1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True"]
