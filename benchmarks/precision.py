"""What precision buys: SoftNeuro's Table I on this machine, and how speed trades for error.

    python -m benchmarks.precision table --threads 1 --json table.json
    python -m benchmarks.precision table bert --only bf16 --only int8 --threads 2 --reuse
    python -m benchmarks.precision front resnet50 --budget 0.001 --budget 0.01 --plot docs/figures/precision.svg

A row of the table is a network compiled with one ``--precision`` under one budget for the error: f32 as a guess that
nothing was measured for, f32, bf16, int8 and the hybrid of all (SoftNeuro, section IV, Table I). All rows of a network
are timed in turn in one run, beside ONNX Runtime and OpenVINO in f32, bf16 and, where NNCF is installed, int8. Where
memory lies differs from process to process, and so do times: repeat a table with ``--reuse``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.peers import Run, openvino_int8, other_peers, sartor_peer
from benchmarks.selection.results import Axes, Line, markdown, plot_lines
from benchmarks.untuned import compile_untuned
from benchmarks.zoo import NETWORKS, sample_inputs, write
from sartor.config import CompileConfig, Precision
from sartor.errors import SartorError
from sartor.onnx_model.load import load_model
from sartor.pipeline import compile_model
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference, relative_error
from sartor.runtime.signature import Array

TABLE_NETWORKS = ("vgg16", "resnet50", "mobilenet_v2", "mobilenet_v3")
_UNTUNED = "untuned f32"
_HYBRID = "hybrid"
_ROWS = {
    "f32": Precision.F32,
    "bf16": Precision.BF16,
    "int8": Precision.INT8,
    _HYBRID: Precision.MIXED,
}
_SAMPLES = 4

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """One way to run one network.

    Attributes:
        network: its name.
        threads: of everyone.
        who: precision of our plan, or a peer.
        milliseconds: median of one inference.
        faster_than_f32: time of our tuned f32 plan over this one; without it OpenVINO's, or ONNX Runtime's, in f32.
        error: relative error against ONNX Runtime.
    """

    network: str
    threads: int
    who: str
    milliseconds: float
    faster_than_f32: float
    error: float


def measure(
    model: Path, directory: Path, config: CompileConfig, seconds: float, only: Sequence[str], *, reuse: bool
) -> list[Row]:
    """Compile a model in several precisions and time all of them in turn.

    Args:
        model: the ONNX file.
        directory: where modules are kept.
        config: settings; ``max_error`` is allowed below f32.
        seconds: of timing.
        only: names of rows of ours.
        reuse: whether modules that are there already are not compiled again.
    """
    feeds = sample_inputs(load_model(model))
    reference = OnnxRuntimeReference(model, threads=config.threads)(feeds)
    modules = {name: directory / f"{model.stem}.{config.threads}.{name.replace(' ', '_')}.vmfb" for name in only}
    for name, path in modules.items():
        if not (reuse and path.exists()):
            _compile(name, model, path, config)
    ours = {name: sartor_peer(path, config.threads) for name, path in modules.items()}
    runs = ours | dict(_peers(model, directory, config.threads))
    errors = {name: relative_error(run(feeds), reference) for name, run in runs.items()}
    callables = {name: partial(run, feeds) for name, run in runs.items()}
    samples = time_interleaved(callables, min_rounds=8, min_seconds=seconds, max_seconds=4 * seconds)
    base = next(samples[name].median for name in ("f32", "openvino", "onnxruntime") if name in samples)
    return [
        Row(model.stem, config.threads, name, taken.median * 1e3, base / taken.median, errors[name])
        for name, taken in samples.items()
    ]


def _compile(name: str, model: Path, path: Path, config: CompileConfig) -> None:
    if name == _UNTUNED:
        compile_untuned(model, path, config)
        return
    precision = _ROWS[name]
    allowed = None if precision is Precision.F32 else config.max_error
    compile_model(model, path, replace(config, precision=precision, max_error=allowed))


def _peers(model: Path, directory: Path, threads: int) -> Iterator[tuple[str, Run]]:
    yield from other_peers(model, threads).items()
    try:
        yield "openvino bf16", OpenVinoReference(model, threads=threads, precision="bf16")
        yield "openvino int8", openvino_int8(model, directory, _samples(model), threads)
    except SartorError as error:
        print(f"{model.stem}: {error}")


def _samples(model: Path) -> list[dict[str, Array]]:
    loaded = load_model(model)
    return [sample_inputs(loaded, seed) for seed in range(_SAMPLES)]


@app.command("table")
def show_table(
    networks: Annotated[list[str] | None, typer.Argument(help="Names of zoo networks, or ONNX files.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of everyone.")] = 1,
    max_error: Annotated[float, typer.Option(help="Error allowed below f32.")] = 0.2,
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/precision"),
    seconds: Annotated[float, typer.Option(help="How long to time a network.")] = 10.0,
    only: Annotated[list[str] | None, typer.Option(help="Rows of ours; repeatable. By default all.")] = None,
    reuse: Annotated[bool, typer.Option(help="Time modules that are there already as they are.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the rows as JSON.")] = None,
) -> None:
    """Time every precision of every network."""
    rows: list[Row] = []
    wanted = only or [_UNTUNED, *_ROWS]
    if unknown := set(wanted) - {_UNTUNED, *_ROWS}:
        raise typer.BadParameter(
            f"there is no row {', '.join(sorted(unknown))}; there are {_UNTUNED}, {', '.join(_ROWS)}"
        )
    for name in networks or TABLE_NETWORKS:
        model = _model(name, directory)
        config = CompileConfig(threads=threads, max_error=max_error, database=directory / "tuning.db")
        rows += measure(model, directory, config, seconds, wanted, reuse=reuse)
        Console().print(markdown([row for row in rows if row.network == model.stem]), markup=False)
        if json_file is not None:
            json_file.write_text(json.dumps([asdict(row) for row in rows], indent=1))


@app.command("front")
def show_front(
    network: Annotated[str, typer.Argument(help="Name of a zoo network, or an ONNX file.")],
    budget: Annotated[list[float], typer.Option(help="Error allowed; repeatable.")],
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/precision"),
    plot: Annotated[Path | None, typer.Option(help="Where to draw the front.")] = None,
) -> None:
    """The fastest plan of all precisions for each budget, timed in turn."""
    model = _model(network, directory)
    config = CompileConfig(threads=threads, precision=Precision.MIXED, database=directory / "tuning.db")
    feeds = sample_inputs(load_model(model))
    reference = OnnxRuntimeReference(model, threads=threads)(feeds)
    runs: dict[float, Run] = {}
    for allowed in sorted(budget):
        path = directory / f"{model.stem}.{threads}.{allowed:g}.vmfb"
        compile_model(model, path, replace(config, max_error=allowed))
        runs[allowed] = sartor_peer(path, threads)
    callables = {str(allowed): partial(run, feeds) for allowed, run in runs.items()}
    samples = time_interleaved(callables, min_rounds=20, min_seconds=10)
    points = [
        (relative_error(run(feeds), reference), samples[str(allowed)].median * 1e3) for allowed, run in runs.items()
    ]
    _show_front(network, list(runs), points, plot)


def _show_front(
    network: str, budgets: Sequence[float], points: Sequence[tuple[float, float]], plot: Path | None
) -> None:
    for allowed, (error, milliseconds) in zip(budgets, points, strict=True):
        print(f"{network}: allowed {allowed:g}, error {error:.2g}, {milliseconds:.3f} ms")
    if plot is not None:
        axes = Axes(f"{network}: time by error", "relative error", "milliseconds", log_x=True)
        plot_lines({axes: [Line("fastest plan", sorted(points))]}, plot)


def _model(name: str, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return write(name, directory) if name in NETWORKS else Path(name)


if __name__ == "__main__":
    app()
