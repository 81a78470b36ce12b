"""Runs modules on x86-64 CPUs that lack what this machine has: by IREE's own program under qemu, which masks features.

qemu emulates no AVX-512: code that uses it is killed there, so it tests that no level runs what its machine lacks.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from sartor.runtime.driver.signature import Array

_TIMEOUT = 120
# The program itself: the command of this name is a script that starts it.
RUN_MODULE = Path(str(distribution("iree-base-runtime").locate_file("iree/_runtime_libs/iree-run-module")))


@dataclass(frozen=True)
class Stock:
    """IREE's own program, on this CPU or on an emulated one.

    Attributes:
        prefix: of its command line.
    """

    prefix: tuple[str, ...] = ()

    def failure(self, module: Path, function: str) -> str:
        """What the program says when it fails; empty if it does not."""
        done = self._run(module, function, ())
        return done.stderr if done.returncode else ""

    def number(self, module: Path, function: str) -> int:
        """The integer that a function without arguments gives."""
        done = self._run(module, function, ())
        assert done.returncode == 0, done.stderr
        return int(done.stdout.rpartition("=")[2])

    def run(self, module: Path, function: str, arguments: Sequence[Array]) -> Array:
        """What a function of a module gives; files of arguments and result are written beside the module."""
        files = [module.parent / f"in{index}.npy" for index in range(len(arguments))]
        for path, array in zip(files, arguments, strict=True):
            np.save(path, array)
        result = module.parent / "out.npy"
        given = [*(f"--input=@{path}" for path in files), f"--output=@{result}"]
        done = self._run(module, function, given)
        assert done.returncode == 0, done.stderr
        return np.asarray(np.load(result))

    def _run(self, module: Path, function: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, str(RUN_MODULE), "--device=local-sync", f"--module={module}", f"--function={function}"]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=_TIMEOUT, check=False)


def emulated(cpu: str) -> Stock | str:
    """IREE's program on an emulated CPU, by qemu's name of it; or what is missing for it."""
    qemu = shutil.which("qemu-x86_64")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "IREE's programs are installed for another instruction set"
    return "there is no qemu-x86_64" if qemu is None else Stock((qemu, "-cpu", cpu))
