"""Times the first inference of the zoo's networks, beside ONNX Runtime and IREE's own tool.

    python -m benchmarks.cold squeezenet resnet50 -o build/cold    # all networks that have a module there by default

A network is compiled where the folder has no NAME.vmfb. Each sample is a fresh process, with the model's files in
memory or dropped from the page cache; runtimes and states take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

import sartor
from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import NETWORKS, write
from sartor.first_inference.cold_bench import COLD_PEERS, ColdRuns, time_cold
from sartor.first_inference.sample import FirstRun
from sartor.runtime.driver.device import device_settings
from sartor.runtime.module_facts import module_manifest, module_signature, module_weights
from sartor.samples.feeds import make_feeds

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A runtime on a network. Times are medians in milliseconds.

    Attributes:
        network: name.
        files: whether the model's files are in memory.
        runtime: what runs it.
        load: opening the model.
        first: the first inference; with a tool that tells nothing, the whole process.
        cold: from the begin of opening to the end of the first inference.
        second: the inference after it; 0 if there is none, like the following.
        third: the one after that.
        warm: the median of the later half.
        whole: from the start of the process to the first result.
        ratio: ``cold`` divided by ``warm``.
    """

    network: str
    files: str
    runtime: str
    load: float
    first: float
    cold: float
    second: float
    third: float
    warm: float
    whole: float
    ratio: float


def measure(network: str, directory: Path, peers: tuple[str, ...], threads: int, rounds: int) -> Iterator[Row]:
    """Time a network's first inferences, compiled if that was not done.

    Raises:
        SartorError: if the network does not compile, or a runtime fails.
    """
    model, module = write(network, directory), directory / f"{network}.vmfb"
    if not module.exists():
        sartor.compile(model, sartor.CompileConfig(threads=threads), output=module)
    signature, weights = module_signature(module), module_weights(module, module_manifest(module))
    feeds, device = make_feeds(signature.inputs, {}, ()), device_settings("cpu", threads)
    runs = ColdRuns(module, signature.entry, weights, device, model, peers, threads, feeds, {}, rounds)
    for (runtime, files), samples in time_cold(runs).items():
        yield _row(network, files, runtime, samples)


def _row(network: str, files: str, runtime: str, samples: list[FirstRun]) -> Row:
    alone = len(samples[0].runs) == 1
    second, third = (0.0 if alone else median(run.runs[index] for run in samples) for index in (1, 2))
    warm, cold = 0.0 if alone else median(run.warm for run in samples), median(run.first for run in samples)
    return Row(
        *(network, files, runtime),
        load=median(run.load for run in samples) * 1e3,
        first=median(run.runs[0] for run in samples) * 1e3,
        cold=cold * 1e3,
        second=second * 1e3,
        third=third * 1e3,
        warm=warm * 1e3,
        whole=median(run.whole for run in samples) * 1e3,
        ratio=cold / warm if warm else 0.0,
    )


@app.command()
def main(
    networks: Annotated[list[str] | None, typer.Argument(help="By default all with a module.")] = None,
    directory: Annotated[Path, typer.Option("-o", help="Folder of models, modules and results.")] = Path("build/cold"),
    peers: Annotated[str, typer.Option(help=f"Other runtimes: {','.join(COLD_PEERS)}.")] = "onnxruntime,iree",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each runtime in each state.")] = 7,
) -> None:
    """Time the networks and write `cold.csv`."""
    directory.mkdir(parents=True, exist_ok=True)
    names = networks or [name for name in NETWORKS if (directory / f"{name}.vmfb").exists()]
    rows = [row for name in names for row in measure(name, directory, tuple(peers.split(",")), threads, rounds)]
    write_csv(rows, directory / "cold.csv")
    print(markdown(rows))


if __name__ == "__main__":
    app()
