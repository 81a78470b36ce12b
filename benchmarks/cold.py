"""Times the first inference of the zoo's networks, beside ONNX Runtime, OpenVINO and IREE's own tool.

    python -m benchmarks.cold squeezenet resnet50 -o build/cold    # all networks that have a module there by default
    python -m benchmarks.cold squeezenet -o build/cold --ablation --load 1
    python -m benchmarks.cold squeezenet -o build/cold --ablation --only prepare    # and later --only time

A network is compiled where the folder has no NAME.latency.vmfb. ``--ablation`` compares what each of NNV12's knobs
brings (its figure 13): the plan for warm inferences (``latency``), that whose kernels are chosen for the first one (K),
and that which also chooses the form of their weights (KC), each with all of the file brought into place before the
first layer runs, and overlapped (P, so KCP with all); and the plans of K and for warm inferences in one file. KC may
store filters in 8 bits, which kernels widen, within an error of 0.05. ``--load`` lets other programs compute meanwhile
(its figure 11). ``--only prepare`` compiles, and lets other runtimes save what they start faster with; ``--only time``
compiles nothing, so that a machine need be quiet for the timing alone, and ``--seconds`` bounds that of each network.

Each sample is a fresh process, with the model's files in memory or dropped from the page cache; runtimes, plans and
states take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.cold_plans import ColdPlan, check_plan, make_plan, overlapped, plan_file, rivals_of, size_of
from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import NETWORKS
from sartor.first_inference.cold_bench import COLD_PEERS, SELF, ColdRuns, save_for_peers, time_cold
from sartor.first_inference.sample import FirstRun
from sartor.runtime.driver.device import device_settings
from sartor.runtime.module_facts import module_manifest, module_signature, module_weights
from sartor.samples.feeds import make_feeds

app = typer.Typer(help=__doc__)
_PEERS = "onnxruntime,iree"
_ALONE = (ColdPlan.LATENCY,)


class Part(StrEnum):
    """A part of a recording that is run alone."""

    PREPARE = "prepare"
    TIME = "time"


@dataclass(frozen=True)
class Settings:
    """What is timed of each network.

    Attributes:
        directory: of models, modules and what other runtimes save.
        plans: of it.
        peers: other runtimes.
        threads: of each.
        rounds: samples of each in each state.
        seconds: no round of a network begins later; None for no limit.
        load: programs that compute meanwhile.
        settles: whether plans run with all of their file brought into place first, too.
    """

    directory: Path
    plans: tuple[ColdPlan, ...]
    peers: tuple[str, ...]
    threads: int
    rounds: int
    seconds: float | None
    load: int = 0
    settles: bool = True


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


def prepare(network: str, settings: Settings) -> None:
    """Make all that is timed of a network, of what is not there.

    Raises:
        SartorError: if the network does not compile, or a runtime fails.
    """
    for plan in settings.plans:
        make_plan(network, settings.directory, plan, settings.threads)
    if settings.peers:
        save_for_peers(runs_of(network, settings))


def check(network: str, settings: Settings) -> None:
    """Make sure that a network was prepared.

    Raises:
        UsageError: if it was not.
    """
    for plan in settings.plans:
        check_plan(network, settings.directory, plan)


def measure(network: str, settings: Settings) -> Iterator[Row]:
    """Time what was prepared of a network.

    Raises:
        UsageError: if a runtime is not installed.
        DeviceError: if a process fails.
    """
    own = SELF if settings.plans == _ALONE else overlapped(settings.plans[0])
    for (runtime, files), samples in time_cold(runs_of(network, settings)).items():
        yield _row(network, files, own if runtime == SELF else runtime, samples)


def runs_of(network: str, settings: Settings) -> ColdRuns:
    """What is timed of a network that was prepared."""
    directory, plans = settings.directory, settings.plans
    module, saved = plan_file(network, directory, plans[0]), directory / "saved"
    saved.mkdir(exist_ok=True)
    signature, weights = module_signature(module), module_weights(module, module_manifest(module))
    return ColdRuns(
        *(module, signature.entry, weights, device_settings("cpu", settings.threads)),
        *(directory / f"{network}.onnx", settings.peers, settings.threads),
        *(make_feeds(signature.inputs, {}, ()), {}, settings.rounds),
        rivals={} if plans == _ALONE else rivals_of(network, directory, plans, settles=settings.settles),
        load=settings.load,
        seconds=settings.seconds,
        saved=saved,
    )


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
    peers: Annotated[
        str | None,
        typer.Option(help=f"Other runtimes: {','.join(COLD_PEERS)}; by default none in an ablation, else {_PEERS}."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each runtime in each state.")] = 7,
    parts: Annotated[bool, typer.Option("--ablation", help="Compare plans, with and without overlap.")] = False,
    plans: Annotated[
        list[ColdPlan] | None, typer.Option("--plan", help="Only this plan, in an ablation; repeatable.")
    ] = None,
    load: Annotated[int, typer.Option(min=0, help="Programs that compute meanwhile.")] = 0,
    seconds: Annotated[float | None, typer.Option(min=1, help="Begin no round of a network after it.")] = None,
    only: Annotated[Part | None, typer.Option(help="Only make files, or only time those that were made.")] = None,
) -> None:
    """Time the networks and write `cold.csv`, or `ablation.csv`, and `sizes.csv`."""
    directory.mkdir(parents=True, exist_ok=True)
    given = ("" if parts else _PEERS) if peers is None else peers
    chosen = tuple(plans or ColdPlan) if parts else _ALONE
    settings = Settings(directory, chosen, tuple(filter(None, given.split(","))), threads, rounds, seconds, load)
    names = networks or [name for name in NETWORKS if plan_file(name, directory, chosen[0]).exists()]
    make_sure = check if only is Part.TIME else prepare
    for name in names:
        make_sure(name, settings)
    write_csv([size_of(name, directory, each) for name in names for each in chosen], directory / "sizes.csv")
    if only is Part.PREPARE:
        return
    rows: list[Row] = []
    for name in names:
        rows += measure(name, settings)
        # What is done is kept if a later network fails, or the time of the machine ends.
        write_csv(rows, directory / ("ablation.csv" if parts else "cold.csv"))
    print(markdown(rows))


if __name__ == "__main__":
    app()
