"""Times networks that Sartor tuned for a GPU beside stock IREE on the same device, and on this machine's CPU.

    python -m benchmarks.gpu lenet5 squeezenet mobilenet_v2 --target vulkan --json results.json

All run on the same inputs, in turn, in one process. Every result is compared with ONNX Runtime's before its time
counts. Stock code for Mesa's software driver takes seconds for an inference, so it is timed in few rounds. Where other
programs run beside it, ``--processor-time`` counts the time that processors spent on the driver's threads, or IREE's.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from benchmarks.launches import launches_of
from benchmarks.peers import Run, StockFiles, build_stock, sartor_peer, stock_peer
from benchmarks.record.circumstances import Circumstances, circumstances
from benchmarks.zoo import NETWORKS, sample_inputs, write
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import SartorError, UsageError
from sartor.onnx_model.reading.load import load_model
from sartor.pipeline import compile_model
from sartor.publishing import written
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.waiting import computes, thread_times
from sartor.runtime.output_error import relative_error

OURS, STOCK, STOCK_CPU = "sartor", "iree", "iree on the CPU"
_ROUNDS = 3
_ERROR_LIMIT = 1e-3


@dataclass(frozen=True)
class Row:
    """One network on one device.

    Attributes:
        network: its name.
        target: device and architecture.
        tuning_seconds: time of the whole compilation, with what the database already contained.
        tuning_processor_seconds: time that processors spent on it, in this process and in workers.
        milliseconds: least time of an inference by who computed it.
        errors: relative error against ONNX Runtime by who computed it.
        layers: layers of the tuned plan.
        launches: kernels, copies and fills of an inference by who computed it, where they are known.
        samples: seconds of each inference by who computed it.
        failures: why who did not take part.
        made: where, when and by which command; None for what is not to be recorded.
    """

    network: str
    target: str
    tuning_seconds: float
    tuning_processor_seconds: float
    milliseconds: Mapping[str, float]
    errors: Mapping[str, float]
    layers: int
    launches: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    made: Circumstances | None = None

    def speedup(self, peer: str) -> float | None:
        """A peer's time divided by Sartor's; None if the peer did not run, or one of them was wrong."""
        both = (OURS, peer)
        if not all(each in self.milliseconds and self.errors[each] <= _ERROR_LIMIT for each in both):
            return None
        return self.milliseconds[peer] / self.milliseconds[OURS]

    def __str__(self) -> str:
        times = ", ".join(f"{name} {millisecond:.1f} ms" for name, millisecond in self.milliseconds.items())
        peers = [each for each in (STOCK, STOCK_CPU) if each in self.milliseconds]
        gains = ", ".join(f"{self.speedup(peer) or math.nan:.2f}x of {peer}" for peer in peers)
        error = f"error {self.errors[OURS]:.1e}" if OURS in self.errors else ""
        tuned = f"tuned in {self.tuning_seconds:.0f} s ({self.tuning_processor_seconds:.0f} s of processors)"
        started = ", ".join(f"{count} launches by {name}" for name, count in self.launches.items())
        failed = ", ".join(f"{name} does not take part: {reason}" for name, reason in self.failures.items())
        return "; ".join(filter(None, [f"{self.network}: {times}", gains, started, error, tuned, failed]))


_ROWS = TypeAdapter(list[Row])


def read_rows(path: Path) -> list[Row]:
    """The rows that runs wrote; none if there is no file.

    Raises:
        UsageError: if the file is damaged, or a row does not say where, when and by which command it was made.
    """
    if not path.exists():
        return []
    try:
        rows = _ROWS.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, ValidationError) as error:
        raise UsageError(f"'{path}' has no results of networks on a GPU: {error}") from None
    if unmade := [row.network for row in rows if row.made is None]:
        raise UsageError(f"'{path}' does not say how the rows of {', '.join(unmade)} were made")
    return rows


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows among those that a file has: each takes the place of its network's on its target, or comes last."""
    places = {(row.network, row.target): row for row in (*read_rows(path), *rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Errors may be infinite or no numbers, for which pydantic's own JSON has null.
    text = json.dumps(_ROWS.dump_python([*places.values()], mode="json"), indent=1)
    with written(path) as new:
        new.write_text(f"{text}\n", encoding="utf-8")


def processor_time() -> float:
    """Seconds that processors spent on this process's threads, without the calling one and those that only wait.

    Threads that spin while they wait for a driver were made nice when the device was opened.
    """
    own, times = threading.get_native_id(), thread_times()
    return sum(taken for thread, taken in times.items() if thread != own and computes(thread))


def measure(
    model: Path,
    directory: Path,
    target: Target,
    database: Path,
    clock: Callable[[], float] = time.perf_counter,
    *,
    has_stock: bool = True,
) -> Row:
    """Tune a network for a target and time it beside stock IREE.

    Args:
        model: ONNX file with static shapes.
        directory: for the modules.
        target: the GPU.
        database: tuning database.
        clock: returns seconds.
        has_stock: whether stock IREE takes part, which takes minutes for an inference of a large network on a software
            driver.

    Raises:
        SartorError: if Sartor cannot compile or run the network.
    """
    begin, processors = time.monotonic(), sum(os.times()[:4])
    output = directory / f"{model.stem}.{target.device}.vmfb"
    artifact = compile_model(model, output, CompileConfig(target=target, database=database))
    seconds, processor_seconds = time.monotonic() - begin, sum(os.times()[:4]) - processors
    feeds = sample_inputs(load_model(model))
    reference = ReferenceModel(model, threads=os.cpu_count() or 1)(feeds)
    peers: dict[str, Run] = {OURS: sartor_peer(output, None, target.device)}
    errors, counted = {OURS: relative_error(peers[OURS](feeds), reference)}, {OURS: launches_of(output)}
    failures = dict[str, str]()
    for name, device in ((STOCK, target), (STOCK_CPU, None)) if has_stock else ():
        try:
            files = build_stock(model, directory, device)
            run = _stock_peer(files, feeds, reference, device)
            errors[name] = relative_error(run(feeds), reference)
        except SartorError as error:
            failures[name] = str(error).replace(f"{directory}{os.sep}", "")
            continue
        peers[name] = run
        counted |= {name: launches_of(files.module)} if device is not None else {}
    callables = {name: (lambda run=run: run(feeds)) for name, run in peers.items()}
    # What compiles at the first call was compiled when the errors were measured.
    samples = time_interleaved(callables, min_rounds=_ROUNDS, warmup=0, clock=clock)
    least = {name: sample.minimum * 1e3 for name, sample in samples.items()}
    launches = {name: count for name, count in counted.items() if count is not None}
    layers, taken = len(artifact.plan.layers), {name: sample.seconds for name, sample in samples.items()}
    spent = seconds, processor_seconds
    return Row(model.stem, str(target), *spent, least, errors, layers, launches, taken, failures)


def _stock_peer(
    files: StockFiles, feeds: Mapping[str, Array], reference: Sequence[Array], target: Target | None
) -> Run:
    """Stock IREE's module on the target, or on all processors."""
    threads = None if target is not None else os.cpu_count() or 1
    return stock_peer(files, feeds, reference, threads, target.device if target is not None else "cpu")


def geometric_mean(rows: Sequence[Row], peer: str) -> float | None:
    """Geometric mean of the speed-ups over a peer; None if it never ran."""
    found = [each for row in rows if (each := row.speedup(peer)) is not None]
    return math.exp(sum(map(math.log, found)) / len(found)) if found else None


def main(
    networks: Annotated[list[str], typer.Argument(help="Names of zoo networks, or ONNX files.")],
    target: Annotated[str, typer.Option(help="vulkan or cuda, which must be here.")] = "vulkan",
    arch: Annotated[str | None, typer.Option(help="Architecture of the device.")] = None,
    processors: Annotated[
        bool, typer.Option("--processor-time", help="Processors' time in place of elapsed time, for a software driver.")
    ] = False,
    stock: Annotated[bool, typer.Option(help="Whether stock IREE takes part.")] = True,
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/gpu"),
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write the rows as JSON, among others there; all code must be committed."),
    ] = None,
) -> None:
    """Compare Sartor with stock IREE on a GPU."""
    directory.mkdir(parents=True, exist_ok=True)
    made = None if json_file is None else circumstances(Path.cwd(), "benchmarks.gpu")
    device, database = Target.create(target, arch), directory / "tuning.db"
    clock = processor_time if processors else time.perf_counter
    console, rows = Console(), list[Row]()
    for name in networks:
        model = write(name, directory) if name in NETWORKS else Path(name)
        try:
            row = measure(model, directory, device, database, clock, has_stock=stock)
        except SartorError as error:
            row = Row(model.stem, str(device), 0.0, 0.0, {}, {}, 0, failures={OURS: str(error)})
        rows.append(replace(row, made=made))
        console.print(str(row), markup=False)
        if json_file is not None:
            write_rows(rows, json_file)
    for peer in (STOCK, STOCK_CPU):
        mean = geometric_mean(rows, peer)
        if mean is not None:
            console.print(f"geometric mean over {peer}: {mean:.2f}x")


if __name__ == "__main__":
    try:
        typer.run(main)
    except SartorError as failed:
        Console(stderr=True).print(f"gpu: {failed}", markup=False)
        raise SystemExit(failed.exit_code) from None
