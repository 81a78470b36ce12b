"""Times a module beside ONNX Runtime and OpenVINO on the same file, by their code for a level of the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.errors import CompileError

HOST = "host"
"""This CPU, as it is."""
_PEERS = ("onnxruntime", "openvino")
_TIMEOUT = 120.0


@dataclass(frozen=True)
class Run:
    """A runtime's median time in milliseconds, and the relative error of its outputs to what the file means."""

    milliseconds: float
    error: float


def timed(module: Path, model: Path, level: str, threads: int) -> dict[str, Run]:
    """Time a module and its peers in turn; by the names that ``sartor bench`` gives.

    Args:
        module: of the model, compiled for ``level``.
        model: the ONNX file.
        level: of the CPU; for any other than ``HOST``, peers see a CPU without AVX-512, VNNI and AMX, but with AVX-VNNI
            if the level has it.
        threads: of each.

    Raises:
        CompileError: if the command fails, with its last line.
    """
    peers = [name for name in _PEERS if find_spec(name) is not None]
    options = ["--vs", str(model), "--peers", ",".join(peers), "--threads", str(threads), "--json"]
    if level == HOST:
        command = [str(Path(sys.executable).with_name("sartor")), "bench", str(module), *options]
    else:
        keeps = ["--avx-vnni"] if INTEGER_DOTS.exists_on(machine_of(Target.create("cpu", level))) else []
        command = [sys.executable, "-m", "benchmarks.older_cpu", *keeps, "sartor", "bench", str(module), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode:
        raise CompileError(f"'{' '.join(command)}' failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    return {run["name"]: Run(run["median_ms"], run["relative_error"]) for run in json.loads(done.stdout)["runs"]}
