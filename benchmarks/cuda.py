"""Networks on a GPU of NVIDIA, by stock IREE, tuned in f32, TF32 and f16, and by other runtimes: in a bounded time.

``python -m benchmarks.cuda -o build/cuda`` runs on the machine that has the GPU. It compiles and times the networks of
the zoo, one after the other, until the time is over, also by PyTorch and ONNX Runtime if they are installed. All keep
inputs and outputs on the GPU, and are compared with ONNX Runtime on the CPU. It leaves in its folder
all that is worth taking home: ``results.json``, the measurements (``tuning.jsonl``, for ``sartor db import``), the
plans, the GPU's clocks, temperature and power in each second (``clocks.csv``), and a log of each command. What fails is
noted in ``results.json``, which is written anew after each result, and the next is tried. Modules that are there
already are not compiled again.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx

from benchmarks.gpu_peers import NOT_INSTALLED, PEERS
from benchmarks.launches import launches_of
from benchmarks.zoo import NETWORKS, write
from sartor.cli.options.common import read_architecture
from sartor.codegen.ir.target import Target

_SECONDS = 20 * 60
# Convolutions, products and depthwise layers come before what has more of the same.
_FIRST = ("resnet50", "bert", "resnet18", "mobilenet_v2", "squeezenet", "lenet5")
_NETWORKS = tuple(dict.fromkeys((*_FIRST, *NETWORKS)))
# A network's part of the time that is left goes to tuning it; the rest is for timing it and for those after it.
_SHARE = 0.5
# With its rivals a network takes so long; those for which no time will be left get none of what there is.
_NETWORK_SECONDS = 240.0
# A runtime that tunes for minutes must not take the time of the networks after it.
_PEER_SECONDS = 90.0
_LEAST_SECONDS = 30.0
# Timing a module and taking measurements home may take so long even when the time is over.
_RESERVE = 60.0
# A module is disassembled in less.
_LEAST_TO_COUNT = 10.0
_STOCK, _TUNED = "stock", "tuned"
_KINDS: Mapping[str, tuple[str, ...]] = {_TUNED: (), "tf32": ("--precision", "tf32"), "f16": ("--precision", "f16")}
_FAILED = "failed"
_ELEMENTS: Mapping[int, str] = {
    onnx.TensorProto.FLOAT: "f32",
    onnx.TensorProto.INT64: "i64",
    onnx.TensorProto.INT32: "i32",
}


# Characters that are kept of what a failed command said last; its log has everything.
_SAID = 300

Result: TypeAlias = dict[str, object]

_WATCHED = "timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active"


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

    def run(
        self, name: str, *command: str, least: float = 1.0, most: float = math.inf
    ) -> subprocess.CompletedProcess[str]:
        """Run one of this environment's commands until the deadline, or for ``least`` seconds if that is later, and for
        ``most`` seconds at most.

        What it says goes to a log of that name.
        """
        program = Path(sys.executable).with_name(command[0])
        whole = [str(program) if program.exists() else command[0], *command[1:]]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, timeout=max(min(self.left, most), least))
        except subprocess.TimeoutExpired as late:
            said = [_text(each) for each in (late.stdout, late.stderr)]
            done = subprocess.CompletedProcess(whole, 124, said[0], f"{said[1]}\nstopped after {late.timeout:.0f} s")
        except OSError as error:
            done = subprocess.CompletedProcess(whole, 127, "", f"it could not be started: {error}")
        log = f"$ {' '.join(whole)}\n{done.stdout}\n{done.stderr}\nexit code {done.returncode}\n"
        (self.folder / f"{name}.log").write_text(log, encoding="utf-8")
        return done


def _text(said: str | bytes | None) -> str:
    """What a stopped command had said, which is not decoded."""
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


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
    return int(not any(_FAILED not in found for kinds in results.values() for found in kinds.values()))


def benchmark(machine: Machine, names: Sequence[str]) -> dict[str, dict[str, Result]]:
    """Compile and time networks, and write ``results.json`` after each result.

    Returns:
        For each network what is known of each kind: times and errors of a module or of another runtime, or under
        ``failed`` why there are none.

    Raises:
        UsageError: for a network that is not in the zoo.
    """
    if machine.target.device == "cuda":
        machine.run("driver", "nvidia-smi", "-q")
    with watched_clocks(machine):
        return _networks(machine, names)


@contextmanager
def watched_clocks(machine: Machine) -> Iterator[None]:
    """Write a GPU's clocks, temperature and power to ``clocks.csv`` once a second: slow times may be those of a slow
    clock."""
    command = ["nvidia-smi", f"--query-gpu={_WATCHED}", "--format=csv", "-l", "1"]
    with (machine.folder / "clocks.csv").open("w", encoding="utf-8") as file:
        try:
            watch = subprocess.Popen(command, stdout=file) if machine.target.device == "cuda" else None
        except OSError as error:
            file.write(f"they could not be watched: {error}\n")
            watch = None
        try:
            yield
        finally:
            if watch is not None:
                watch.terminate()
                watch.wait()


def _networks(machine: Machine, names: Sequence[str]) -> dict[str, dict[str, Result]]:
    results: dict[str, dict[str, Result]] = {}
    for number, name in enumerate(names):
        if machine.left < _LEAST_SECONDS:
            break
        model = write(name, machine.folder)
        reached = min(len(names) - number, max(1, int(machine.left // _NETWORK_SECONDS)))
        share = machine.left * _SHARE / reached
        results[name] = {}
        for kind, found in _found(machine, name, model, share):
            results[name][kind] = found
            (machine.folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
        export = ("sartor", "db", "export", str(machine.folder / "tuning.jsonl"), *_database(machine))
        machine.run("export", *export, least=_RESERVE)
    return results


def _found(machine: Machine, name: str, model: Path, seconds: float) -> Iterator[tuple[str, Result]]:
    """What there is to say of a network, by kind."""
    for kind, module in compiled(machine, name, model, seconds):
        signature = ("--signature", stock_signature(model)) if kind == _STOCK else ()
        if isinstance(module, dict):
            yield kind, module
        else:
            found = timed(machine, f"{name}.{kind}.bench", model, module, signature)
            yield kind, found | launched(machine, module)
    for peer in PEERS if machine.target.device == "cuda" else ():
        if machine.left < _LEAST_SECONDS:
            return
        command = (Path(sys.executable).name, "-m", "benchmarks.gpu_peers", str(model), peer)
        done = machine.run(f"{name}.{peer}", *command, most=_PEER_SECONDS)
        if done.returncode != NOT_INSTALLED:
            yield peer, _result(done)


def compiled(machine: Machine, name: str, model: Path, seconds: float) -> Iterator[tuple[str, Path | Result]]:
    """A network's modules by kind: stock IREE's, tuned in its own types, and tuned with TF32 or f16 allowed; why there
    is none if it could not be compiled."""
    stock = machine.folder / f"{name}.{_STOCK}.vmfb"
    if not stock.exists():
        text = str(machine.folder / f"{name}.mlir")
        machine.run(f"{name}.{_STOCK}.import", "iree-import-onnx", str(model), "-o", text, "--opset-version", "17")
        compile_stock = ("iree-compile", text, "-o", str(stock), *machine.target.flags)
        machine.run(f"{name}.{_STOCK}.compile", *compile_stock, most=_PEER_SECONDS)
    yield _STOCK, stock if stock.exists() else {_FAILED: f"see {name}.{_STOCK}.compile.log"}
    for kind, options in _KINDS.items():
        if kind == "tf32" and not machine.target.multiplies_tf32:
            continue
        module = machine.folder / f"{name}.{kind}.vmfb"
        if not module.exists():
            plan = ("--save-plan", str(machine.folder / f"{name}.{kind}.json"))
            given = (
                *machine.options,
                "--time-budget",
                f"{seconds / len(_KINDS):.0f}",
                *options,
                *plan,
                *_database(machine),
            )
            machine.run(f"{name}.{kind}.compile", "compile-to-vmfb", str(model), "-o", str(module), *given)
        yield kind, module if module.exists() else {_FAILED: f"see {name}.{kind}.compile.log"}


def stock_signature(model: Path) -> str:
    """What a model takes and gives, which modules by stock IREE do not record."""
    graph = onnx.load(model, load_external_data=False).graph
    weights = {initializer.name for initializer in graph.initializer}
    inputs = [_tensor(each) for each in graph.input if each.name not in weights]
    return f"func @{graph.name}({', '.join(inputs)}) -> ({', '.join(map(_tensor, graph.output))})"


def _tensor(value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type
    shape = "x".join(str(each.dim_value) for each in kind.shape.dim)
    return f"%{value.name}: tensor<{shape}x{_ELEMENTS[kind.elem_type]}>"


def timed(machine: Machine, name: str, model: Path, module: Path, options: Sequence[str] = ()) -> Result:
    """What ``benchmarks.gpu_module`` says of a module, or why it failed."""
    python = (Path(sys.executable).name, "-m", "benchmarks.gpu_module")
    command = (*python, str(model), str(module), machine.target.device, *options)
    return _result(machine.run(name, *command, least=_RESERVE))


def launched(machine: Machine, module: Path) -> Result:
    """How often an inference starts something on the GPU: kernels, copies and fills; nothing if that is not known."""
    count = launches_of(module, max(machine.left, _LEAST_TO_COUNT))
    return {} if count is None else {"launches": count}


def _result(done: subprocess.CompletedProcess[str]) -> Result:
    """The object that a command printed, or why there is none."""
    if done.returncode:
        return {_FAILED: f"exit code {done.returncode}: {done.stderr.strip()[-_SAID:]}"}
    try:
        found: Result = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {_FAILED: f"it printed no JSON: {done.stdout.strip()[-_SAID:]}"}
    return found


def _database(machine: Machine) -> tuple[str, ...]:
    return "--tuning-db", str(machine.database)


if __name__ == "__main__":
    sys.exit(main())
