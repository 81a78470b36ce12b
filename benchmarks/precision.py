"""Measures the speed of lower precision: SoftNeuro's Table I on this machine, and time by allowed error.

    python -m benchmarks.precision table --threads 1 --json table.json
    python -m benchmarks.precision table bert --only bf16 --only int8 --threads 2 --reuse
    python -m benchmarks.precision front resnet50 --budget 0.001 --budget 0.01 --plot docs/figures/precision.svg

A row of the table is a network compiled with one ``--precision`` within one error budget: untuned f32, f32, bf16, int8
and the hybrid of all (SoftNeuro, section IV, Table I). All rows of a network are timed in turn in one run, in blocks of
a quarter of a second, beside ONNX Runtime and OpenVINO in f32, bf16 and, if NNCF is installed, int8. Memory addresses,
and with them times, differ from process to process. So each of ``--processes`` processes times all rows, and the table
shows medians over the processes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.contest import BLOCK, Contest, Timed, time_in_processes
from benchmarks.peers import Run, sartor_peer
from benchmarks.selection.results import Axes, Line, markdown, plot_lines
from benchmarks.untuned import compile_untuned
from benchmarks.zoo import NETWORKS, sample_inputs, write
from sartor.config import CompileConfig
from sartor.onnx_model.reading.load import load_model
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference

TABLE_NETWORKS = ("vgg16", "resnet50", "mobilenet_v2", "mobilenet_v3")
_UNTUNED = "untuned f32"
_HYBRID = "hybrid"
_ROWS = {
    "f32": Precision.F32,
    "bf16": Precision.BF16,
    "int8": Precision.INT8,
    _HYBRID: Precision.MIXED,
}
_RIVALS = {
    _UNTUNED: "openvino",
    "f32": "openvino",
    "bf16": "openvino bf16",
    "int8": "openvino int8",
    _HYBRID: "openvino int8",
}

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """One module, or one other runtime, on one network.

    Attributes:
        network: its name.
        threads: number of threads.
        who: precision of Sartor's plan, or name of the other runtime.
        milliseconds: median time of one inference, in the median process.
        faster_than_f32: time of Sartor's tuned f32 plan divided by this one; without that plan, OpenVINO's or ONNX
            Runtime's time in f32.
        faster_than_openvino: OpenVINO's time in the same type divided by this one; for a hybrid, in 8 bits. None for
            other runtimes.
        lowest: the lowest ratio to OpenVINO of all processes.
        highest: the highest.
        error: relative error against ONNX Runtime.
    """

    network: str
    threads: int
    who: str
    milliseconds: float
    faster_than_f32: float
    faster_than_openvino: float | None
    lowest: float | None
    highest: float | None
    error: float


def measure(
    model: Path,
    directory: Path,
    config: CompileConfig,
    only: Sequence[str],
    *,
    seconds: float,
    processes: int,
    reuse: bool,
) -> list[Row]:
    """Compile a model in several precisions and time all of them in turn.

    Args:
        model: the ONNX file.
        directory: for the modules.
        config: settings; ``max_error`` is the bound below f32.
        only: names of Sartor's rows.
        seconds: duration of timing in each process.
        processes: number of timing processes, which run one after another.
        reuse: whether existing modules are used instead of compiled again.
    """
    modules = {name: directory / f"{model.stem}.{config.threads}.{name.replace(' ', '_')}.vmfb" for name in only}
    for name, path in modules.items():
        if not (reuse and path.exists()):
            _compile(name, model, path, config)
    found = time_in_processes(Contest(model, directory, config.threads, modules, seconds), processes)
    base = next(name for name in ("f32", "openvino", "onnxruntime") if name in found[0])
    return [_row(model.stem, config.threads, name, base, found) for name in found[0]]


def _row(network: str, threads: int, name: str, base: str, found: Sequence[Timed]) -> Row:
    rival = _RIVALS.get(name, "")
    ahead = [each[rival].seconds / each[name].seconds for each in found if rival in each]
    return Row(
        network,
        threads,
        name,
        1e3 * median(each[name].seconds for each in found),
        median(each[base].seconds / each[name].seconds for each in found),
        median(ahead) if ahead else None,
        min(ahead, default=None),
        max(ahead, default=None),
        found[0][name].error,
    )


def _compile(name: str, model: Path, path: Path, config: CompileConfig) -> None:
    if name == _UNTUNED:
        compile_untuned(model, path, config)
        return
    precision = _ROWS[name]
    allowed = None if precision is Precision.F32 else config.max_error
    compile_model(model, path, replace(config, precision=precision, max_error=allowed))


@app.command("table")
def show_table(
    networks: Annotated[list[str] | None, typer.Argument(help="Names of zoo networks, or ONNX files.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of everyone.")] = 1,
    max_error: Annotated[float, typer.Option(help="Error allowed below f32.")] = 0.2,
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/precision"),
    seconds: Annotated[float, typer.Option(help="How long each process times a network.")] = 10.0,
    processes: Annotated[int, typer.Option(min=1, help="How many processes time a network.")] = 3,
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
        rows += measure(model, directory, config, wanted, seconds=seconds, processes=processes, reuse=reuse)
        Console().print(markdown([row for row in rows if row.network == model.stem]), markup=False, soft_wrap=True)
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
    samples = time_interleaved(callables, min_rounds=8, min_seconds=10, block=BLOCK)
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
        plot_lines({axes: [Line("fastest plan", _undominated(points))]}, plot)


def _undominated(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other dominates, sorted by error: a larger budget may give a worse plan."""
    kept: list[tuple[float, float]] = []
    for error, milliseconds in sorted(points):
        if not kept or milliseconds < kept[-1][1]:
            kept.append((error, milliseconds))
    return kept


def _model(name: str, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return write(name, directory) if name in NETWORKS else Path(name)


if __name__ == "__main__":
    app()
