"""Starts Python on CPUs that lack what this machine has, by qemu; their ONNX Runtime has no VNNI and no AVX-512."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys

# AVX2 without VNNI; what qemu does not emulate is left out, as it would say so.
HASWELL = "Haswell,pcid=off,x2apic=off,tsc-deadline=off,hle=off,rtm=off,invpcid=off"
_TIMEOUT = 300


def python_on(cpu: str) -> tuple[str, ...] | str:
    """The command of Python on an emulated x86-64 CPU, by qemu's name of it; or what is missing for it."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "Python is installed for another instruction set"
    qemu = shutil.which("qemu-x86_64")
    return "there is no qemu-x86_64" if qemu is None else (qemu, "-cpu", cpu, sys.executable)


def output_of(python: tuple[str, ...], module: str) -> str:
    """What a module of the tests prints when that Python runs it."""
    done = subprocess.run([*python, "-m", module], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
