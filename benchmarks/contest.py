"""Times a network's modules beside other runtimes, in turn, in several processes.

Memory addresses differ from process to process, and with them the time of the same code, by a tenth and more.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers import Run, openvino_int8, other_peers, sartor_peer
from benchmarks.zoo import sample_inputs
from sartor.errors import SartorError
from sartor.onnx_model.reading.load import load_model
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference

BLOCK = 0.25
"""Seconds for which each competitor runs in its turn."""

_SAMPLES = 4


@dataclass(frozen=True)
class Result:
    """Result of one competitor: typical seconds of an inference, and its relative error against ONNX Runtime."""

    seconds: float
    error: float


Timed = Mapping[str, Result]
"""Results of one process, by the competitor's name."""


@dataclass(frozen=True)
class Contest:
    """The competitors.

    Attributes:
        model: the ONNX file.
        directory: for the model quantised for OpenVINO.
        threads: number of threads of every competitor.
        modules: Sartor's modules, by name.
        seconds: duration of timing.
    """

    model: Path
    directory: Path
    threads: int
    modules: Mapping[str, Path]
    seconds: float


def time_in_processes(contest: Contest, processes: int) -> list[Timed]:
    """Time the competitors in several processes, one after another; returns the results of each process."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.map(_time, [contest] * processes, chunksize=1)


def _time(contest: Contest) -> Timed:
    feeds = sample_inputs(load_model(contest.model))
    reference = OnnxRuntimeReference(contest.model, threads=contest.threads)(feeds)
    ours = {name: sartor_peer(path, contest.threads) for name, path in contest.modules.items()}
    runs = ours | dict(_peers(contest))
    errors = {name: relative_error(run(feeds), reference) for name, run in runs.items()}
    samples = time_interleaved(
        {name: partial(run, feeds) for name, run in runs.items()},
        min_rounds=5,
        min_seconds=contest.seconds,
        block=BLOCK,
    )
    return {name: Result(taken.median, errors[name]) for name, taken in samples.items()}


def _peers(contest: Contest) -> Iterator[tuple[str, Run]]:
    model, threads = contest.model, contest.threads
    yield from other_peers(model, threads).items()
    try:
        yield "openvino bf16", OpenVinoReference(model, threads=threads, precision="bf16")
        yield "openvino int8", openvino_int8(model, contest.directory, _samples(model), threads)
    except SartorError as error:
        print(f"{model.stem}: {error}")


def _samples(model: Path) -> list[dict[str, Array]]:
    loaded = load_model(model)
    return [sample_inputs(loaded, seed) for seed in range(_SAMPLES)]
