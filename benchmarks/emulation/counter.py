"""Counts the instructions that a function of a module executes on AArch64, under emulation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.ir.layer import TensorType
from sartor.errors import UsageError

_SOURCE = Path(__file__).parent / "count_instructions.c"
_VARIABLE = "SARTOR_AARCH64_RUNTIME"
_LIBRARIES = "/usr/aarch64-linux-gnu"
# Versions of the plugins' interface that an emulator may ask for.
_VERSIONS = range(1, 7)
_FEW, _MANY = 1, 3


@dataclass(frozen=True)
class InstructionCounter:
    """Runs functions of modules under emulation and counts instructions.

    Attributes:
        qemu: the emulator.
        plugin: file of the plugin that counts.
        program: ``iree-benchmark-module`` for AArch64.
    """

    qemu: str
    plugin: Path
    program: Path

    @staticmethod
    def built(folder: Path) -> InstructionCounter:
        """A counter whose plugin is built in ``folder``, for the emulator that is installed.

        Raises:
            UsageError: if the emulator, IREE's runtime for AArch64 or a C compiler is missing, or the emulator takes no
                such plugin.
        """
        qemu, compiler = shutil.which("qemu-aarch64"), shutil.which("cc")
        runtime = os.environ.get(_VARIABLE)
        if qemu is None or compiler is None or not runtime:
            raise UsageError(
                f"qemu-aarch64, cc and {_VARIABLE} are needed; install qemu-user and gcc, and name what .ci/aarch64 "
                "prints"
            )
        program = Path(runtime) / "iree" / "_runtime_libs" / "iree-benchmark-module"
        for version in _VERSIONS:
            plugin = folder / f"count_instructions.{version}.so"
            command = [compiler, "-O2", "-shared", "-fPIC", f"-DVERSION={version}", "-o", str(plugin), str(_SOURCE)]
            subprocess.run(command, check=True)
            counter = InstructionCounter(qemu, plugin, program)
            if counter._executed(["--help"]) is not None:
                return counter
        raise UsageError(f"'{qemu}' takes no plugin of versions {_VERSIONS[0]} to {_VERSIONS[-1]}; use another build")

    def count(self, module: Path, function: str, arguments: Sequence[TensorType]) -> float:
        """Instructions of one call with arguments of zeros: the difference between calling several times and once.

        Raises:
            UsageError: if the function does not run.
        """
        inputs = [f"--input={'x'.join(map(str, argument.shape))}x{argument.dtype}" for argument in arguments]
        common = ["--device=local-sync", f"--module={module}", f"--function={function}", *inputs]
        few, many = (self._executed([*common, f"--benchmark_min_time={calls}x"]) for calls in (_FEW, _MANY))
        if few is None or many is None:
            raise UsageError(f"'{function}' of '{module}' does not run under emulation")
        return (many - few) / (_MANY - _FEW)

    def _executed(self, arguments: Sequence[str]) -> int | None:
        """Instructions of a run of the program; None if it fails or nothing was counted."""
        command = [self.qemu, "-plugin", str(self.plugin), "-L", _LIBRARIES, str(self.program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r"executed instructions: (\d+)", done.stderr)
        return int(found[1]) if found and not done.returncode else None
