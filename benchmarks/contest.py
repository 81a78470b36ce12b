"""Times competitors on one network in turn, in blocks, in several processes.

Memory addresses differ from process to process, and with them the time of the same code, by a tenth and more. Runs that
follow other competitors' runs find their caches cold and their cores spinning, so each runs in blocks of its own, after
a pause. The inputs on which errors are measured are none of those that calibrate.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from onnx import ModelProto

from benchmarks.peers import (
    Run,
    bound_onnxruntime_peer,
    bound_sartor_peer,
    build_stock,
    sartor_peer,
    stock_peer,
)
from benchmarks.quantised_peer import openvino_int8
from benchmarks.zoo import sample_inputs
from sartor.errors import SartorError
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.onnx_model.reading.load import load_model
from sartor.reference.expected_outputs import Expectation, Expected
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import module_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference

EVALUATED_FROM = 1000
"""Seed of the first input that is evaluated; calibration has seeds below."""

_FEWEST_ROUNDS = 5
# Opening stock IREE compiles for minutes at most, and ONNX Runtime runs the largest network in seconds.
_PATIENCE = 3600.0


class LostError(SartorError):
    """A process that timed competitors ended without a result, or not in time."""


@dataclass(frozen=True)
class Start:
    """What a competitor gets.

    Attributes:
        model: the ONNX file.
        threads: how many it may use.
        feeds: inputs by name.
        expected: what ONNX Runtime computes from them.
    """

    model: Path
    threads: int
    feeds: Mapping[str, Array]
    expected: Sequence[Array]


Opener = Callable[[Start], Run]
"""Opens a competitor; it can be sent to another process."""


def open_onnxruntime(start: Start) -> Run:
    """ONNX Runtime in f32 with its own settings."""
    return OnnxRuntimeReference(start.model, threads=start.threads, is_timed=True)


def open_openvino(precision: str, start: Start) -> Run:
    """OpenVINO that computes in ``precision``."""
    return OpenVinoReference(start.model, threads=start.threads, precision=precision)


def open_openvino_int8(directory: Path, samples: int, precision: str, start: Start) -> Run:
    """OpenVINO on the model that NNCF quantised by ``samples`` inputs; the rest computes in ``precision``."""
    return openvino_int8(start.model, directory, calibration_samples(start.model, samples), start.threads, precision)


def open_sartor(module: Path, start: Start) -> Run:
    """A module of Sartor, with as many of the threads as it was found to run fastest with, as sessions open it."""
    return sartor_peer(module, _best_threads(module, start.threads))


def open_bound_sartor(module: Path, start: Start) -> Run:
    """A module of Sartor with bound memory."""
    return bound_sartor_peer(module, _best_threads(module, start.threads), start.feeds)


def open_bound_onnxruntime(start: Start) -> Run:
    """ONNX Runtime with bound memory."""
    return bound_onnxruntime_peer(start.model, start.threads, start.feeds, start.expected)


def open_stock(directory: Path, flags: str, start: Start) -> Run:
    """Stock IREE with the flags of that name, whose module lies in ``directory``."""
    return stock_peer(build_stock(start.model, directory, flags=flags), start.feeds, start.expected, start.threads)


def _best_threads(module: Path, most: int) -> int:
    manifest = module_manifest(module)
    return min(most, (manifest.workers if manifest else None) or most)


def calibration_samples(model: Path, count: int) -> list[dict[str, Array]]:
    """The inputs that calibrate, for every competitor the same."""
    loaded = load_model(model)
    return [sample_inputs(loaded, seed) for seed in range(count)]


@dataclass(frozen=True)
class Contest:
    """The competitors and the conditions.

    Attributes:
        model: the ONNX file.
        threads: number of threads of every competitor.
        rivals: opens each competitor, by name.
        seconds: duration of timing in each process.
        evaluated: number of inputs on which errors are measured; the first is timed.
        evaluated_from: seed of the first of them.
    """

    model: Path
    threads: int
    rivals: Mapping[str, Opener]
    seconds: float
    evaluated: int = 1
    evaluated_from: int = EVALUATED_FROM


@dataclass(frozen=True)
class Timing:
    """A competitor in one process.

    Attributes:
        samples: seconds of an inference, the median of each block.
        error: largest relative error against ONNX Runtime on the evaluated inputs.
    """

    samples: tuple[float, ...]
    error: float


@dataclass(frozen=True)
class Timed:
    """The results of one process by competitor, and why others took no part."""

    timings: Mapping[str, Timing]
    failures: Mapping[str, str]


def time_in_processes(contest: Contest, processes: int) -> list[Timed]:
    """Time the competitors in several processes, one after another; returns the results of each process.

    Who ends its process, as by a fault in memory, or does not return, has failed, and the others are timed without it.

    Raises:
        SartorError: if ONNX Runtime, whose results are the right ones, cannot run the model.
    """
    return [_time_apart(contest) for _ in range(processes)]


def _time_apart(contest: Contest) -> Timed:
    try:
        return _in_process(contest)
    except LostError:
        lost = dict(_losses(contest))
    others = {name: opener for name, opener in contest.rivals.items() if name not in lost}
    try:
        timed = _in_process(replace(contest, rivals=others))
    except LostError as error:
        timed = Timed({}, dict.fromkeys(others, f"beside the others {error}"))
    return Timed(timed.timings, {**lost, **timed.failures})


def _losses(contest: Contest) -> Iterator[tuple[str, str]]:
    """Whose process is lost though it is alone, and why.

    Raises:
        LostError: if that of ONNX Runtime's reference is.
    """
    _in_process(replace(contest, rivals={}))
    for name, opener in contest.rivals.items():
        try:
            _in_process(replace(contest, rivals={name: opener}, seconds=0.0))
        except LostError as error:
            yield name, str(error)


def _in_process(contest: Contest) -> Timed:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(theirs, contest))
    process.start()
    theirs.close()
    try:
        if not ours.poll(_PATIENCE):
            raise LostError(f"its process did not end within {_PATIENCE:.0f} s")
        told: Timed | SartorError = ours.recv()
    except EOFError:
        raise LostError("it ended its process") from None
    finally:
        process.kill()
        process.join()
    if isinstance(told, SartorError):
        raise told
    return told


def _tell(connection: Connection, contest: Contest) -> None:
    try:
        connection.send(_time(contest))
    except SartorError as error:
        connection.send(error)


def _time(contest: Contest) -> Timed:
    loaded = load_model(contest.model)
    feeds = [sample_inputs(loaded, contest.evaluated_from + number) for number in range(contest.evaluated)]
    expected = _expected(contest, loaded, feeds)
    start = Start(contest.model, contest.threads, feeds[0], expected[0].outputs)
    runs, errors, failures = _open(contest.rivals, start, lambda run: _error(run, feeds, expected))
    if not runs:
        return Timed({}, failures)
    samples = time_interleaved(
        {name: partial(run, feeds[0]) for name, run in runs.items()},
        min_rounds=_FEWEST_ROUNDS,
        min_seconds=contest.seconds,
        block=BLOCK,
        pause=PAUSE,
    )
    return Timed({name: Timing(taken.seconds, errors[name]) for name, taken in samples.items()}, failures)


def _open(
    rivals: Mapping[str, Opener], start: Start, error_of: Callable[[Run], float]
) -> tuple[dict[str, Run], dict[str, float], dict[str, str]]:
    """Those that can be opened and run, their errors, and why others cannot."""
    runs, errors, failures = dict[str, Run](), dict[str, float](), dict[str, str]()
    for name, open_rival in rivals.items():
        try:
            run = open_rival(start)
            errors[name] = error_of(run)
            runs[name] = run
        except SartorError as error:
            failures[name] = str(error)
    return runs, errors, failures


def _expected(contest: Contest, loaded: ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Expected]:
    """ONNX Runtime's outputs, and the scales of their elements, as a compilation compares by."""
    prepared = prepare(loaded).model
    take_out_quantisation(prepared)
    expectation = Expectation((contest.model,), prepared, threads=contest.threads, narrow=False)
    return [expectation(feed) for feed in feeds]


def _error(run: Run, feeds: Sequence[Mapping[str, Array]], expected: Sequence[Expected]) -> float:
    return max(
        relative_error(run(given), wanted.outputs, scales=wanted.scales)
        for given, wanted in zip(feeds, expected, strict=True)
    )
