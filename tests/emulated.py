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

from sartor.codegen.ir.layer import TensorType
from sartor.runtime.driver.signature import Array

_VARIABLE = "SARTOR_AARCH64_RUNTIME"
_LIBRARIES = Path("/usr/aarch64-linux-gnu")
# Whole networks of their true size take minutes.
_TIMEOUT = 1800 if os.environ.get("SARTOR_AARCH64_FULL") == "1" else 120
# IREE's program reads and writes numbers of this type only without numpy's header.
_RAW = "bf16"


@dataclass(frozen=True)
class Emulator:
    """Runs programs for AArch64.

    Attributes:
        qemu: the emulator.
        program: ``iree-run-module``.
    """

    qemu: str
    program: Path

    def run(self, module: Path, function: str, arguments: Sequence[Array], result: TensorType | None = None) -> Array:
        """What a function of a module gives; files of arguments and of the result are written beside the module.

        A result in bf16 needs its type, as IREE's program writes none of that type as a numpy array.
        """
        given = [_written(module.parent / f"in{index}", argument) for index, argument in enumerate(arguments)]
        is_raw = result is not None and result.dtype == _RAW
        wanted = module.parent / ("out.bin" if is_raw else "out.npy")
        command = [self.qemu, "-L", str(_LIBRARIES), str(self.program), "--device=local-sync", f"--module={module}"]
        command += [f"--function={function}", *(f"--input={each}" for each in given), f"--output=@{wanted}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
        assert done.returncode == 0, done.stderr
        if result is None or not is_raw:
            return np.asarray(np.load(wanted))
        return np.fromfile(wanted, result.numpy_dtype).reshape(result.shape)


@dataclass(frozen=True)
class EmulatedProgram:
    """A module that an emulator runs, one function at a time.

    Attributes:
        emulator: runs it.
        module: its file.
    """

    emulator: Emulator
    module: Path


def _written(path: Path, array: Array) -> str:
    """Write an argument to a file; returns how IREE's program is told of it."""
    if array.dtype != TensorType((), _RAW).numpy_dtype:
        np.save(path.with_suffix(".npy"), array)
        return f"@{path.with_suffix('.npy')}"
    array.tofile(path.with_suffix(".bin"))
    return f"{'x'.join(map(str, (*array.shape, _RAW)))}=@{path.with_suffix('.bin')}"


def emulator() -> Emulator | str:
    """The emulator, or what is missing for it."""
    qemu, folder = shutil.which("qemu-aarch64"), os.environ.get(_VARIABLE)
    if qemu is None:
        return "there is no qemu-aarch64"
    if not _LIBRARIES.is_dir():
        return f"there are no libraries for AArch64 in {_LIBRARIES}"
    if not folder:
        return f"{_VARIABLE} names no runtime for AArch64"
    program = Path(folder) / "iree" / "_runtime_libs" / "iree-run-module"
    return Emulator(qemu, program) if program.is_file() else f"{_VARIABLE} names a folder without {program.name}"
