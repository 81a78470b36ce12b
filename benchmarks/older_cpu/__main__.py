"""Runs a command in which ONNX Runtime and OpenVINO find an x86-64 CPU with AVX2 alone.

    python -m benchmarks.older_cpu sartor bench model.vmfb --vs model.onnx --peers onnxruntime,openvino --threads 1

Their code for AVX2 then runs at the speed of this CPU, beside modules that Sartor compiled for ``x86-64-v3``. OpenVINO
has a setting for that, ONNX Runtime none: its library is copied, with other instructions at the places of CPUID, which
a preloaded library answers as the CPU does, without AVX-512, VNNI and AMX. On CPUs that lack these nothing differs.
With ``--avx-vnni`` before the command they find AVX-VNNI too, as CPUs have it that modules are compiled for by
``--cpu alderlake``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.older_cpu.libraries import older_environment
from sartor.errors import SartorError

_FOLDER = Path("build/older_cpu")
_KEEPS_VNNI = "--avx-vnni"


def main(command: list[str]) -> int:
    """Run the command; returns its exit code."""
    keeps_vnni = command[:1] == [_KEEPS_VNNI]
    command = command[keeps_vnni:]
    if not command or platform.machine() != "x86_64" or sys.platform != "linux":
        print(f"{__doc__}\nIt takes a command, on Linux on x86-64.", file=sys.stderr)
        return 2
    # The programs of this Python come first.
    program = Path(sys.executable).parent / command[0]
    try:
        environment = {**os.environ, **older_environment(_FOLDER, avx_vnni=keeps_vnni)}
    except SartorError as error:
        print(error, file=sys.stderr)
        return 2
    found = str(program) if program.exists() else command[0]
    return subprocess.run([found, *command[1:]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
