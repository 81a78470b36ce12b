"""Quantised networks beside ONNX Runtime and OpenVINO on the same files: times, and errors to what the files mean.

    python -m benchmarks.quantised files resnet50 bert keyword.onnx --levels host,x86-64-v3 --time-budget 30
    python -m benchmarks.quantised floats resnet18 resnet50 vgg16 --level x86-64-v3 --max-error 0.1

Modules for a level below this CPU's are timed beside the code that peers have for a CPU with AVX2 alone, where they add
products in 16 bits, which saturate (``benchmarks.older_cpu``). Compilations share a tuning database, so a second run
takes less time.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.quantised.beside import HOST, Run, timed
from benchmarks.quantised.files import quantised_file
from benchmarks.quantised.floats import gain
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.pipeline import compile_model

app = typer.Typer(help=__doc__)
_Networks = Annotated[list[str], typer.Argument(help="Zoo networks, or ONNX files.")]
_Threads = Annotated[int, typer.Option(min=1, help="Threads of everyone.")]
_Budget = Annotated[float | None, typer.Option(help="Seconds of each compilation.")]
_Folder = Annotated[Path, typer.Option("--output", "-o", help="Folder of files.")]
_FOLDER = Path("build/quantised")
_OWN, _PEERS = "sartor", ("onnxruntime", "openvino")


class Part(StrEnum):
    """A part of what ``files`` does."""

    BUILD = "build"
    TIME = "time"


@app.command()
def files(
    networks: _Networks,
    levels: Annotated[str, typer.Option(help="CPU levels that modules are compiled for.")] = HOST,
    threads: _Threads = 1,
    time_budget: _Budget = None,
    reduced: Annotated[bool, typer.Option("--reduced", help="Quantise weights to 7 bits.")] = False,
    by_nncf: Annotated[bool, typer.Option("--nncf", help="Quantise by NNCF.")] = False,
    part: Annotated[Part | None, typer.Option(help="Do this alone, as to time modules that were built before.")] = None,
    output: _Folder = _FOLDER,
) -> None:
    """Quantise, compile and time; ratios above 1 where Sartor's module is faster than the faster peer."""
    output.mkdir(parents=True, exist_ok=True)
    print("| network | CPU level | ms | ONNX Runtime | OpenVINO | faster peer / this | errors in the same order |")
    print("|---|---|---:|---:|---:|---:|---|")
    for network in networks:
        model = quantised_file(network, output, reduced=reduced, by_nncf=by_nncf)
        for level in levels.split(","):
            module = output / f"{model.stem}.{level}.{threads}.vmfb"
            if part is not Part.TIME:
                compile_model(model, module, _config(level, threads, time_budget, output))
            if part is not Part.BUILD:
                print(_row(model.stem, level, timed(module, model, level, threads)), flush=True)


@app.command()
def floats(
    networks: _Networks,
    level: Annotated[str, typer.Option(help="CPU level that modules are compiled for.")] = HOST,
    max_error: Annotated[float, typer.Option(help="Error that modules in 8 bits may have.")] = 0.1,
    threads: _Threads = 1,
    time_budget: _Budget = None,
    seconds: Annotated[float, typer.Option(help="Duration of the timing of a network.")] = 8.0,
    output: _Folder = _FOLDER,
) -> None:
    """Compile networks of floats in f32 and in 8 bits, and time both in turn."""
    output.mkdir(parents=True, exist_ok=True)
    print("| network | CPU level | f32 ms | 8 bits ms | f32 / 8 bits | error |\n|---|---|---:|---:|---:|---:|")
    for network in networks:
        config = _config(level, threads, time_budget, output)
        found = gain(network, output, config, max_error, seconds)
        times = f"{found.single:.2f} | {found.narrow:.2f} | {found.single / found.narrow:.2f}"
        print(f"| {network} | {level} | {times} | {found.error:.2g} |", flush=True)


def _config(level: str, threads: int, time_budget: float | None, folder: Path) -> CompileConfig:
    database = folder / "tuning.db"
    return CompileConfig(Target.create("cpu", level), threads, time_budget=time_budget, database=database)


def _row(name: str, level: str, runs: dict[str, Run]) -> str:
    own, peers = runs[_OWN].milliseconds, [runs[peer] for peer in _PEERS if peer in runs]
    times = [f"{runs[peer].milliseconds:.2f}" if peer in runs else "" for peer in _PEERS]
    ratio = f"{min(peer.milliseconds for peer in peers) / own:.2f}" if peers else ""
    errors = ", ".join(f"{run.error:.2g}" for run in (runs[_OWN], *peers))
    return f"| {name} | {level} | {own:.2f} | {' | '.join(times)} | {ratio} | {errors} |"


if __name__ == "__main__":
    app()
