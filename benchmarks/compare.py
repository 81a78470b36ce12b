"""Times Sartor, stock IREE, ONNX Runtime and OpenVINO on the same inputs, interleaved in one run.

    python -m benchmarks.compare resnet50 mobilenet_v2 --threads 1 --threads 2 --json results.json

Every competitor's outputs are compared with ONNX Runtime's before its time counts. A ratio is the competitor's time
divided by Sartor's; its interval is a bootstrap over the rounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.peers import Run, build_stock, other_peers, sartor_peer, stock_peer
from benchmarks.zoo import NETWORKS, sample_inputs, write
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import SartorError
from sartor.onnx_model.reading.load import load_model
from sartor.pipeline import compile_model
from sartor.progress import Progress, silent
from sartor.runtime.benchmark import time_interleaved, time_ratio
from sartor.runtime.output_error import relative_error
from sartor.tuning.records.hardware import host

OURS = "sartor"
STOCK = "iree -O3"
_ERROR_LIMIT = 1e-3


@dataclass(frozen=True)
class Row:
    """One competitor on one network.

    Attributes:
        network: name.
        threads: number of threads of every competitor.
        peer: name of the competitor.
        milliseconds: median time of one inference.
        speedup: the competitor's time divided by Sartor's, with its interval.
        error: relative error against ONNX Runtime.
    """

    network: str
    threads: int
    peer: str
    milliseconds: float
    speedup: float
    low: float
    high: float
    error: float


def compare(
    model: Path, directory: Path, threads: int, database: Path, seconds: float = 8.0, progress: Progress = silent
) -> tuple[Artifact, list[Row]]:
    """Tune a model, build it by stock IREE, and time all competitors in turn.

    Args:
        model: ONNX file with static shapes.
        directory: for the modules.
        threads: number of threads for tuning and for every competitor.
        database: tuning database.
        seconds: duration of timing.
        progress: told about every step.
    """
    config = CompileConfig(threads=threads, database=database)
    artifact = compile_model(model, directory / f"{model.stem}.{threads}.vmfb", config, progress)
    feeds = sample_inputs(load_model(model))
    peers = other_peers(model, threads)
    reference = peers["onnxruntime"](feeds)
    peers = {OURS: sartor_peer(artifact.path, threads), **peers}
    try:
        progress("compiling with stock IREE", 0, 1)
        peers[STOCK] = stock_peer(build_stock(model, directory), feeds, reference, threads)
    except SartorError as error:
        print(f"{model.stem}: stock IREE does not take part: {error}")
    progress("timing", 0, 1)
    return artifact, _time(model.stem, threads, peers, feeds, reference, seconds)


def _time(
    network: str,
    threads: int,
    peers: Mapping[str, Run],
    feeds: Mapping[str, object],
    reference: Sequence[object],
    seconds: float,
) -> list[Row]:
    errors = {name: relative_error(run(feeds), reference) for name, run in peers.items()}  # type: ignore[arg-type]
    callables = {name: (lambda run=run: run(feeds)) for name, run in peers.items()}
    samples = time_interleaved(callables, min_rounds=8, min_seconds=seconds, max_seconds=4 * seconds)
    rows = []
    for name, taken in samples.items():
        ratio = time_ratio(taken, samples[OURS])
        rows.append(Row(network, threads, name, taken.median * 1e3, ratio.value, ratio.low, ratio.high, errors[name]))
    return rows


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table for the terminal."""
    shown = Table(title=f"milliseconds per inference, batch 1, on {host().description}")
    for heading in ("network", "threads", "who", "ms", "Sartor is faster by", "relative error"):
        shown.add_column(heading, justify="left" if heading in ("network", "who") else "right")
    for row in rows:
        wrong = "" if row.error <= _ERROR_LIMIT else " (wrong)"
        speedup = "" if row.peer == OURS else f"{row.speedup:.2f}x [{row.low:.2f}, {row.high:.2f}]"
        shown.add_row(
            row.network, str(row.threads), row.peer, f"{row.milliseconds:.2f}", speedup, f"{row.error:.1e}{wrong}"
        )
    return shown


def geometric_means(rows: Sequence[Row]) -> dict[tuple[int, str], float]:
    """Geometric mean of the speed-ups over each competitor, by thread count and competitor."""
    groups: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        if row.peer != OURS:
            groups.setdefault((row.threads, row.peer), []).append(row.speedup)
    return {key: math.exp(sum(map(math.log, values)) / len(values)) for key, values in sorted(groups.items())}


def main(
    networks: Annotated[list[str], typer.Argument(help="Names of zoo networks, or ONNX files.")],
    threads: Annotated[list[int], typer.Option(help="Thread counts, one table each.")] = [1, 2],  # noqa: B006
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/compare"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the rows as JSON.")] = None,
) -> None:
    """Compare Sartor with its competitors."""
    directory.mkdir(parents=True, exist_ok=True)
    console = Console()
    rows: list[Row] = []
    for name in networks:
        model = write(name, directory) if name in NETWORKS else Path(name)
        for count in threads:
            try:
                rows += compare(model, directory, count, directory / "tuning.db")[1]
            except SartorError as error:
                console.print(f"[red]{name}, {count} threads: {error}")
                continue
            console.print(table([row for row in rows if row.network == model.stem and row.threads == count]))
            if json_file is not None:
                json_file.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    for (count, peer), mean in geometric_means(rows).items():
        console.print(f"geometric mean over {peer} at {count} threads: {mean:.2f}x")


if __name__ == "__main__":
    typer.run(main)
