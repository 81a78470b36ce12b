"""The fastest plans of a network by allowed error: time by error, as a plot.

    python -m benchmarks.precision resnet50 --budget 0.001 --budget 0.01 --plot docs/figures/precision.svg

Tables of single precisions and of the hybrid are recorded by ``benchmarks.record``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.peers import Run, sartor_peer
from benchmarks.selection.results import Axes, Line, plot_lines
from benchmarks.zoo import NETWORKS, sample_inputs, write
from sartor.config import CompileConfig
from sartor.onnx_model.reading.load import load_model
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.output_error import relative_error

app = typer.Typer(help=__doc__)


@app.command()
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
    reference = ReferenceModel(model, threads=threads)(feeds)
    runs: dict[float, Run] = {}
    for allowed in sorted(budget):
        path = directory / f"{model.stem}.{threads}.{allowed:g}.vmfb"
        compile_model(model, path, replace(config, max_error=allowed))
        runs[allowed] = sartor_peer(path, threads)
    callables = {str(allowed): partial(run, feeds) for allowed, run in runs.items()}
    samples = time_interleaved(callables, min_rounds=8, min_seconds=10, block=BLOCK, pause=PAUSE)
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
