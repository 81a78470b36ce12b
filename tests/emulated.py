"""Runs modules for AArch64 on a machine of another instruction set: by IREE's own program under qemu.

``SARTOR_AARCH64_RUNTIME`` names a folder with an unpacked wheel of ``iree-base-runtime`` for AArch64 (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.runtime.driver.signature import Array

_VARIABLE = "SARTOR_AARCH64_RUNTIME"
_LIBRARIES = Path("/usr/aarch64-linux-gnu")
_TIMEOUT = 120


@dataclass(frozen=True)
class Emulator:
    """Runs programs for AArch64.

    Attributes:
        qemu: the emulator.
        program: ``iree-run-module``.
    """

    qemu: str
    program: Path

    def run(self, module: Path, function: str, arguments: Sequence[Array], results: int = 1) -> list[Array]:
        """What a function of a module gives; files of arguments and results are written beside the module."""
        given = [module.parent / f"in{index}.npy" for index in range(len(arguments))]
        wanted = [module.parent / f"out{index}.npy" for index in range(results)]
        for path, array in zip(given, arguments, strict=True):
            np.save(path, array)
        command = [self.qemu, "-L", str(_LIBRARIES), str(self.program), "--device=local-sync", f"--module={module}"]
        command += [f"--function={function}", *(f"--input=@{path}" for path in given)]
        command += [f"--output=@{path}" for path in wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
        assert done.returncode == 0, done.stderr
        return [np.asarray(np.load(path)) for path in wanted]


@dataclass(frozen=True)
class EmulatedProgram:
    """A module that an emulator runs, one function at a time.

    Attributes:
        emulator: runs it.
        module: its file.
    """

    emulator: Emulator
    module: Path


def emulator() -> Emulator | str:
    """The emulator, or what is missing for it."""
    qemu, folder = shutil.which("qemu-aarch64"), os.environ.get(_VARIABLE)
    if qemu is None:
        return "there is no qemu-aarch64"
    if not _LIBRARIES.is_dir():
        return f"there are no libraries for AArch64 in {_LIBRARIES}"
    if folder is None:
        return f"{_VARIABLE} names no runtime for AArch64"
    program = Path(folder) / "iree" / "_runtime_libs" / "iree-run-module"
    return Emulator(qemu, program) if program.is_file() else f"{_VARIABLE} names a folder without {program.name}"
