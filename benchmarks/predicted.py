"""How far plans that are predicted, or tuned in little time, are from fully tuned ones, and how long both take.

    python -m benchmarks.predicted resnet50 lenet5 -o build/predicted    # all networks of the zoo by default

Each compilation is a command of its own with an empty database and an empty cache folder, timed from the start of its
process to its end, when the checked file is published. The package has bytecode, as when it is installed. The modules
are then timed in turn, in several processes.
"""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.contest import Contest, open_sartor, time_in_processes
from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import NETWORKS, write
from sartor.codegen.source_digest import locate
from sartor.errors import CompileError

app = typer.Typer(add_completion=False)
_COMPILE = "from sartor.cli.main import compile_main; compile_main()"
_TUNED = "tuned"
PACKAGES = ("sartor", "sartor.codegen", "sartor.dialect_passes", "sartor.runtime", "sartor.tuning")
_PROCESSES, _SECONDS = 3, 2.0


@dataclass(frozen=True)
class Row:
    """One plan of a network.

    Attributes:
        network: name in the zoo.
        budget: seconds of the time budget, or ``tuned``.
        compilation: seconds of the command.
        inference: milliseconds of an inference.
        ratio: of that to the tuned plan's.
    """

    network: str
    budget: str
    compilation: float
    inference: float
    ratio: float


def compile_within(model: Path, output: Path, budget: str, threads: int) -> float:
    """Compile a model with an empty database and cache; returns the seconds that the command takes.

    Args:
        model: the ONNX file.
        output: of the module.
        budget: seconds of the time budget, or ``tuned`` for none.
        threads: to tune for.

    Raises:
        CompileError: if the command fails.
    """
    options = [] if budget == _TUNED else ["--time-budget", budget]
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


def measure(model: Path, budgets: Sequence[str], folder: Path, threads: int) -> list[Row]:
    """Compile a model within each budget and without one, and time the modules in turn.

    Raises:
        SartorError: if it does not compile, or a module does not run.
    """
    modules = {budget: folder / f"{model.stem}.{budget}.vmfb" for budget in (*budgets, _TUNED)}
    taken = {budget: compile_within(model, module, budget, threads) for budget, module in modules.items()}
    rivals = {budget: partial(open_sartor, module) for budget, module in modules.items()}
    timed = time_in_processes(Contest(model, threads, rivals, _SECONDS), _PROCESSES)
    for each in timed:
        for budget, reason in each.failures.items():
            raise CompileError(f"the module of '{model.name}' with {budget} does not run: {reason}")
    medians = {
        budget: statistics.median(statistics.median(each.timings[budget].samples) for each in timed)
        for budget in modules
    }
    return [
        Row(model.stem, budget, taken[budget], 1e3 * medians[budget], medians[budget] / medians[_TUNED])
        for budget in modules
    ]


def with_bytecode() -> None:
    """Compile the package's sources to bytecode, which a new checkout lacks, wherever Python is told to write it."""
    for name in PACKAGES:
        path = locate(name)
        if path is not None:
            compileall.compile_dir(path.parent, quiet=1)


@app.command()
def show(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks; all of them by default.")] = None,
    budgets: Annotated[str, typer.Option(help="Time budgets in seconds.")] = "0",
    threads: Annotated[int, typer.Option(help="Threads to tune for.")] = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for models and the CSV file.")] = Path(
        "build/predicted"
    ),
) -> None:
    """Compile and time every network, and print the table with the geometric mean and the worst ratio."""
    with_bytecode()
    rows: list[Row] = []
    for network in networks or NETWORKS:
        rows += measure(write(network, output), budgets.split(","), output, threads)
        write_csv(rows, output / "predicted.csv")
    print(markdown(rows))
    for budget in budgets.split(","):
        ratios = [each.ratio for each in rows if each.budget == budget]
        print(f"budget {budget}: mean {statistics.geometric_mean(ratios):.3f}, worst {max(ratios):.3f}")


if __name__ == "__main__":
    app()
