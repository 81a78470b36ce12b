"""How far plans that are predicted, or tuned in little time, are from fully tuned ones, and how long both take.

    python -m benchmarks.predicted resnet50 lenet5 -o build/predicted    # all networks of the zoo by default
    python -m benchmarks.predicted MODEL.onnx... --budgets 15 --peers --no-tuned    # beside ONNX Runtime and OpenVINO
    python -m benchmarks.predicted squeezenet --budgets default,5%    # without a budget, tuned until that part is left

Each compilation is a command of its own with an empty database and an empty cache folder, timed from the start of its
process to its end, when the checked file is published. The package has bytecode, as when it is installed. The modules
are then timed in turn, in several processes.
"""

from __future__ import annotations

import compileall
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.contest import Contest, Opener, open_onnxruntime, open_openvino, open_sartor, time_in_processes
from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import NETWORKS, write
from sartor.codegen.source_digest import locate
from sartor.errors import CompileError

app = typer.Typer(add_completion=False)
_COMPILE = "from sartor.cli.main import compile_main; compile_main()"
_TUNED, _DEFAULT = "tuned", "default"
PACKAGES = ("sartor", "sartor.codegen", "sartor.dialect_passes", "sartor.runtime", "sartor.tuning")
_PROCESSES, _SECONDS = 3, 2.0
_PEERS: Mapping[str, Opener] = {"ONNX Runtime": open_onnxruntime, "OpenVINO": partial(open_openvino, "f32")}


@dataclass(frozen=True)
class Row:
    """One plan of a network.

    Attributes:
        network: name in the zoo.
        budget: seconds of the time budget, a percentage until which it is tuned, ``default``, or ``tuned``.
        compilation: seconds of the command.
        inference: milliseconds of an inference.
        ratio: of that to the tuned plan's; NaN without one.
        peer: of the faster peer's milliseconds to that; NaN without peers.
    """

    network: str
    budget: str
    compilation: float
    inference: float
    ratio: float
    peer: float = math.nan


def compile_within(model: Path, output: Path, budget: str, threads: int) -> float:
    """Compile a model with an empty database and cache; returns the seconds that the command takes.

    Args:
        model: the ONNX file.
        output: of the module.
        budget: seconds of the time budget, a percentage until which it is tuned, ``default`` for neither, or ``tuned``
            to measure each kind of layer.
        threads: to tune for.

    Raises:
        CompileError: if the command fails.
    """
    options = _options(budget)
    with tempfile.TemporaryDirectory(prefix="sartor-") as directory:
        database = ["--tuning-db", str(Path(directory) / "t.db"), "--threads", str(threads)]
        command = [sys.executable, "-c", _COMPILE, str(model), "-o", str(output), *database, *options]
        begin = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, "XDG_CACHE_HOME": directory}, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - begin
    if done.returncode:
        raise CompileError(f"'{model.name}' with {budget} does not compile: {done.stderr.strip()}")
    return seconds


def _options(budget: str) -> list[str]:
    if budget == _DEFAULT:
        return []
    if budget == _TUNED:
        return ["--tune-until", "0"]
    return ["--tune-until" if budget.endswith("%") else "--time-budget", budget]


def measure(model: Path, budgets: Sequence[str], folder: Path, threads: int, *, peers: bool = False) -> list[Row]:
    """Compile a model within each budget, and time the modules in turn.

    Args:
        model: the ONNX file.
        budgets: as for ``compile_within``; others are compared to the plan of ``tuned``.
        folder: of the modules.
        threads: to tune for and to run with.
        peers: whether ONNX Runtime and OpenVINO run beside.

    Raises:
        SartorError: if it does not compile, or a module does not run.
    """
    modules = {budget: folder / f"{model.stem}.{budget}.vmfb" for budget in budgets}
    taken = {budget: compile_within(model, module, budget, threads) for budget, module in modules.items()}
    rivals: dict[str, Opener] = {budget: partial(open_sartor, module) for budget, module in modules.items()}
    seconds = _timed(Contest(model, threads, {**rivals, **(_PEERS if peers else {})}, _SECONDS))
    tuned = seconds.get(_TUNED, math.nan)
    faster = min((seconds[peer] for peer in _PEERS if peer in seconds), default=math.nan)
    return [
        Row(model.stem, budget, taken[budget], 1e3 * found, found / tuned, faster / found)
        for budget, found in seconds.items()
        if budget in modules
    ]


def _timed(contest: Contest) -> dict[str, float]:
    """Seconds of an inference of each rival, the median of the medians of several processes, without peers that fail.

    Raises:
        CompileError: if a module does not run.
    """
    timed = time_in_processes(contest, _PROCESSES)
    failures = {rival: reason for each in timed for rival, reason in each.failures.items()}
    for rival, reason in failures.items():
        if rival not in _PEERS:
            raise CompileError(f"the module of '{contest.model.name}' with {rival} does not run: {reason}")
        print(f"{contest.model.name}: {rival} fails: {reason}", file=sys.stderr)
    return {
        rival: statistics.median(statistics.median(each.timings[rival].samples) for each in timed)
        for rival in contest.rivals
        if rival not in failures
    }


def with_bytecode() -> None:
    """Compile the package's sources to bytecode, which a new checkout lacks, wherever Python is told to write it."""
    for name in PACKAGES:
        path = locate(name)
        if path is not None:
            compileall.compile_dir(path.parent, quiet=1)


@app.command()
def show(
    networks: Annotated[
        list[str] | None, typer.Argument(help="Zoo networks or ONNX files; all of the zoo by default.")
    ] = None,
    budgets: Annotated[
        str, typer.Option(help="Time budgets in seconds, percentages to tune until, or default for neither.")
    ] = "0",
    threads: Annotated[int, typer.Option(help="Threads to tune for.")] = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for models and the CSV file.")] = Path(
        "build/predicted"
    ),
    tuned: Annotated[bool, typer.Option(help="Compile with all kinds of layers measured, too.")] = True,
    peers: Annotated[bool, typer.Option(help="Time ONNX Runtime and OpenVINO beside.")] = False,
) -> None:
    """Compile and time every network, and print the table with the geometric means and the worst ratios."""
    output.mkdir(parents=True, exist_ok=True)
    with_bytecode()
    given = budgets.split(",")
    rows: list[Row] = []
    for network in networks or NETWORKS:
        model = Path(network) if network.endswith(".onnx") else write(network, output)
        rows += measure(model, [*given, *([_TUNED] if tuned else [])], output, threads, peers=peers)
        write_csv(rows, output / "predicted.csv")
    print(markdown(rows))
    for budget in given:
        found = [row for row in rows if row.budget == budget]
        if tuned:
            ratios = [each.ratio for each in found]
            print(f"budget {budget}: mean {statistics.geometric_mean(ratios):.3f}, worst {max(ratios):.3f}")
        if peers:
            ratios = [each.peer for each in found]
            print(f"budget {budget}, to peers: mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    app()
