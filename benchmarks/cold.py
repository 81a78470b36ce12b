"""Times the first inference of the zoo's networks, beside ONNX Runtime and IREE's own tool.

    python -m benchmarks.cold squeezenet resnet50 -o build/cold    # all networks that have a module there by default
    python -m benchmarks.cold squeezenet -o build/cold --ablation --load 1

A network is compiled where the folder has no NAME.vmfb. ``--ablation`` compares what the choice of kernels and the
overlap bring (NNV12, figure 13): its plan for warm inferences (``latency``) and for cold ones (K), each with all of the
file brought into place before the first layer runs, and overlapped (P), and both plans in one file. Weights are packed
when a module is compiled, so that none is without C. ``--load`` lets other programs compute meanwhile (its figure 11).

Each sample is a fresh process, with the model's files in
memory or dropped from the page cache; runtimes and states take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

import sartor
from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import NETWORKS, write
from sartor.first_inference.cold_bench import COLD_PEERS, ColdRuns, Rival, time_cold
from sartor.first_inference.sample import FirstRun
from sartor.runtime.driver.device import device_settings
from sartor.runtime.manifest import read_manifest
from sartor.runtime.module_facts import module_manifest, module_signature, module_weights
from sartor.samples.feeds import make_feeds
from sartor.tuning.records.network import Network
from sartor.tuning.selection.problem.cost import Objective

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A runtime on a network. Times are in milliseconds, and medians but for the least.

    Attributes:
        network: name.
        files: whether the model's files are in memory.
        runtime: what runs it.
        load: opening the model.
        first: the first inference; with a tool that tells nothing, the whole process.
        cold: from the begin of opening to the end of the first inference.
        least: the least of these: other programs only add time.
        second: the inference after it; 0 if there is none, like the following.
        third: the one after that.
        warm: the median of the later half.
        whole: from the start of the process to the first result.
        least_whole: the least of these.
        processor: the least processor time of all threads for ``cold``; 0 if it is not known, like the next.
        later: the least of an inference of the later half.
        ratio: ``cold`` divided by ``warm``; beside other programs ``processor`` by ``later`` tells more.
    """

    network: str
    files: str
    runtime: str
    load: float
    first: float
    cold: float
    least: float
    second: float
    third: float
    warm: float
    whole: float
    least_whole: float
    processor: float
    later: float
    ratio: float


@dataclass(frozen=True)
class Size:
    """What a plan takes on the disk, and to make (NNV12, table 4).

    Attributes:
        network: name.
        plan: its objective.
        model_mib: of the ONNX file.
        module_mib: of the module.
        weights_mib: of the weights in it.
        seconds: to make the plan and the module; 0 if they were there.
    """

    network: str
    plan: str
    model_mib: float
    module_mib: float
    weights_mib: float
    seconds: float


def ablation(
    network: str, directory: Path, plans: tuple[Objective, ...], threads: int, rounds: int, load: int
) -> tuple[list[Row], list[Size]]:
    """Time a network's plans for warm and for cold inferences, with and without overlap.

    Raises:
        SartorError: as ``measure``.
    """
    model = write(network, directory)
    sizes = [_compiled(network, model, directory, objective, threads) for objective in plans]
    begins = _module(network, directory, plans[0])
    rivals = {}
    for objective in plans:
        module, name = _module(network, directory, objective), _NAMES[objective]
        if objective is Objective.COLD_LATENCY:
            rivals[name] = Rival(module)
        else:
            rivals |= {f"{name}, settled": Rival(module, settled=True), f"{name} + P": Rival(module)}
    signature, device = module_signature(begins), device_settings("cpu", threads)
    feeds = make_feeds(signature.inputs, {}, ())
    runs = ColdRuns(begins, signature.entry, {}, device, None, (), threads, feeds, {}, rounds, rivals=rivals, load=load)
    found = time_cold(runs)
    return [_row(network, files, name, each) for (name, files), each in found.items() if name in rivals], sizes


_NAMES = {Objective.LATENCY: "latency", Objective.COLD: "K", Objective.COLD_LATENCY: "both"}


def _module(network: str, directory: Path, objective: Objective) -> Path:
    return directory / f"{network}.{objective}.vmfb"


def _compiled(network: str, model: Path, directory: Path, objective: Objective, threads: int) -> Size:
    """Compile a network for an objective if that was not done, and say what that took."""
    module, begin = _module(network, directory, objective), time.perf_counter()
    is_there = module.exists()
    if not is_there:
        config = sartor.CompileConfig(threads=threads, objective=objective, database=directory / "tuning.db")
        sartor.compile(model, config, output=module)
    seconds = 0.0 if is_there else time.perf_counter() - begin
    manifest = read_manifest(module)
    layers = Network.from_json(manifest.network, f"the network in '{module}'").layers if manifest.network else ()
    added = 0 if manifest.successor is None else manifest.successor["weight_bytes"]
    weights = sum(each.bytes for layer in layers for each in layer.weights) + added
    of_model, of_module = (each.stat().st_size / 2**20 for each in (model, module))
    return Size(network, str(objective), of_model, of_module, weights / 2**20, seconds)


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
        least=min(run.first for run in samples) * 1e3,
        second=second * 1e3,
        third=third * 1e3,
        warm=warm * 1e3,
        whole=median(run.whole for run in samples) * 1e3,
        least_whole=min(run.whole for run in samples) * 1e3,
        processor=min((run.taken[0] for run in samples if run.taken), default=0.0) * 1e3,
        later=min((each for run in samples for each in run.taken[len(run.taken) // 2 :]), default=0.0) * 1e3,
        ratio=cold / warm if warm else 0.0,
    )


@app.command()
def main(
    networks: Annotated[list[str] | None, typer.Argument(help="By default all with a module.")] = None,
    directory: Annotated[Path, typer.Option("-o", help="Folder of models, modules and results.")] = Path("build/cold"),
    peers: Annotated[str, typer.Option(help=f"Other runtimes: {','.join(COLD_PEERS)}.")] = "onnxruntime,iree",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each runtime in each state.")] = 7,
    parts: Annotated[bool, typer.Option("--ablation", help="Compare plans, with and without overlap.")] = False,
    plans: Annotated[
        list[Objective] | None, typer.Option("--plan", help="Only plans of this objective, in an ablation; repeatable.")
    ] = None,
    load: Annotated[int, typer.Option(min=0, help="Programs that compute beside an ablation.")] = 0,
) -> None:
    """Time the networks and write `cold.csv`, or `ablation.csv` and `sizes.csv`."""
    directory.mkdir(parents=True, exist_ok=True)
    if parts:
        of = tuple(plans or _NAMES)
        found = [ablation(name, directory, of, threads, rounds, load) for name in networks or ["squeezenet"]]
        for name, table in (
            ("ablation", [row for rows, _ in found for row in rows]),
            ("sizes", [row for _, rows in found for row in rows]),
        ):
            write_csv(table, directory / f"{name}.csv")
            print(markdown(table))
        return
    names = networks or [name for name in NETWORKS if (directory / f"{name}.vmfb").exists()]
    rows = [row for name in names for row in measure(name, directory, tuple(peers.split(",")), threads, rounds)]
    write_csv(rows, directory / "cold.csv")
    print(markdown(rows))


if __name__ == "__main__":
    app()
