"""Networks on a GPU of NVIDIA, by stock IREE and tuned, with and without f16: all in a bounded time.

``python -m benchmarks.cuda -o build/cuda`` runs on the machine that has the GPU. It compiles and times networks, one
after the other, until the time is over, and leaves in its folder all that is worth taking home: ``results.json``, the
measurements (``tuning.jsonl``, for ``sartor db import``), the plans, and a log of each command. Modules that are there
already are not compiled again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo import write
from sartor.cli.options.common import read_architecture
from sartor.codegen.ir.target import Target

_SECONDS = 20 * 60
_NETWORKS = ("resnet18", "resnet50", "bert", "mobilenet_v2", "mobilenet_v1", "squeezenet", "lenet5")
# A network's part of the time that is left goes to tuning it; the rest is for timing it and for those after it.
_SHARE = 0.5
_LEAST_SECONDS = 30.0
# Timing a module and taking measurements home may take so long even when the time is over.
_RESERVE = 60.0
_STOCK, _TUNED, _NARROW = "stock", "tuned", "f16"


@dataclass(frozen=True)
class Machine:
    """Where the benchmark runs.

    Attributes:
        folder: of everything that is kept.
        target: what is compiled for.
        deadline: when to stop, by ``time.monotonic``.
    """

    folder: Path
    target: Target
    deadline: float

    @property
    def database(self) -> Path:
        """The tuning database."""
        return self.folder / "tuning.db"

    @property
    def options(self) -> tuple[str, ...]:
        """Options that select the target."""
        level = "--cpu" if self.target.device == "cpu" else "--arch"
        return "--target", self.target.device, level, self.target.architecture

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    def run(self, name: str, *command: str, least: float = 1.0) -> subprocess.CompletedProcess[str]:
        """Run one of this environment's commands until the deadline, or for ``least`` seconds if that is later.

        What it says goes to a log of that name.
        """
        program = Path(sys.executable).with_name(command[0])
        whole = [str(program) if program.exists() else command[0], *command[1:]]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, timeout=max(self.left, least))
        except subprocess.TimeoutExpired as late:
            done = subprocess.CompletedProcess(whole, 124, "", f"stopped after {late.timeout:.0f} s")
        log = f"$ {' '.join(whole)}\n{done.stdout}\n{done.stderr}\nexit code {done.returncode}\n"
        (self.folder / f"{name}.log").write_text(log, encoding="utf-8")
        return done


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the exit code says whether anything was timed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument("-o", type=Path, required=True, help="folder for results")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="time for all")
    parser.add_argument("--target", default="cuda", help="another device, to try the script")
    parser.add_argument("--arch", default="native", help="architecture")
    parser.add_argument("names", nargs="*", help="networks of the zoo")
    options = parser.parse_args(arguments)
    options.o.mkdir(parents=True, exist_ok=True)
    arch = None if options.target == "cpu" else read_architecture(options.target, options.arch)
    machine = Machine(options.o, Target.create(options.target, arch), time.monotonic() + options.seconds)
    results = benchmark(machine, options.names or _NETWORKS)
    return int(not any(results.values()))


def benchmark(machine: Machine, names: Sequence[str]) -> dict[str, dict[str, object]]:
    """Compile and time networks, and write ``results.json`` after each.

    Returns:
        For each network the summary of ``sartor bench`` of each module.

    Raises:
        UsageError: for a network that is not in the zoo.
    """
    results: dict[str, dict[str, object]] = {}
    if machine.target.device == "cuda":
        machine.run("driver", "nvidia-smi", "-q")
    for number, name in enumerate(names):
        if machine.left < _LEAST_SECONDS:
            break
        model = write(name, machine.folder)
        share = machine.left * _SHARE / (len(names) - number)
        results[name] = {}
        for kind, module in compiled(machine, name, model, share):
            if (found := timed(machine, name, kind, module)) is not None:
                results[name][kind] = found
            (machine.folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
        export = ("sartor", "db", "export", str(machine.folder / "tuning.jsonl"), *_database(machine))
        machine.run("export", *export, least=_RESERVE)
    return results


def compiled(machine: Machine, name: str, model: Path, seconds: float) -> Iterator[tuple[str, Path]]:
    """A network's modules by kind: stock IREE's, tuned in its own types, and tuned with f16 allowed."""
    stock = machine.folder / f"{name}.{_STOCK}.vmfb"
    if not stock.exists():
        text = str(machine.folder / f"{name}.mlir")
        machine.run(f"{name}.{_STOCK}.import", "iree-import-onnx", str(model), "-o", text, "--opset-version", "17")
        machine.run(f"{name}.{_STOCK}.compile", "iree-compile", text, "-o", str(stock), *machine.target.flags)
    if stock.exists():
        yield _STOCK, stock
    kinds: Mapping[str, tuple[str, ...]] = {_TUNED: (), _NARROW: ("--precision", "f16")}
    for kind, options in kinds.items():
        module = machine.folder / f"{name}.{kind}.vmfb"
        if not module.exists():
            plan = ("--save-plan", str(machine.folder / f"{name}.{kind}.json"))
            given = (*machine.options, "--time-budget", f"{seconds:.0f}", *options, *plan, *_database(machine))
            machine.run(f"{name}.{kind}.compile", "compile-to-vmfb", str(model), "-o", str(module), *given)
        if module.exists():
            yield kind, module


def timed(machine: Machine, name: str, kind: str, module: Path) -> object:
    """What ``sartor bench`` says of a module; None if it failed."""
    command = ("sartor", "bench", str(module), "--device", machine.target.device, "--json")
    done = machine.run(f"{name}.{kind}.bench", *command, least=_RESERVE)
    if done.returncode:
        return None
    found: object = json.loads(done.stdout)
    return found


def _database(machine: Machine) -> tuple[str, ...]:
    return "--tuning-db", str(machine.database)


if __name__ == "__main__":
    sys.exit(main())
