"""Worker side of integrated profiling: check whole networks, then time them in turn (SoftNeuro, section III-D)."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sartor.codegen.ir.layer import NetworkValue
from sartor.devices import is_cpu
from sartor.errors import DeviceError, SartorError
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.memory import allocated_bytes
from sartor.runtime.output_error import output_errors, relative_error
from sartor.runtime.session import Session
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.measuring.runs.cold_read import drop_page_cache
from sartor.tuning.measuring.runs.gpu_clock import ReadClock, clock_of
from sartor.tuning.measuring.runs.interruptions import timed
from sartor.tuning.measuring.runs.steady_clock import ClockedSample, steady
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.records.measurement import Status, typical_time
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import OUT_OF_MEMORY_SIGN, WorkerError

_FIRST_ROUNDS = 5
_TRIALS = 2
# A block of a network of microseconds is so long, as single runs of it vary by as much as they take.
_BLOCK_SECONDS, _MOST_IN_A_BLOCK = 2e-3, 100
_IN_OUTPUT = re.compile(r" in output '.*?'(?= against the reference|$)", re.DOTALL)


@dataclass(frozen=True)
class NetRun:
    """Result of running one whole network.

    Attributes:
        status: OK, WRONG_RESULT, CRASHED or OUT_OF_MEMORY.
        samples: seconds of an inference, or the medians of blocks of them.
        error: relative error against the reference.
        message: why it failed, or in which output the largest error is (``told_output``).
        memory: bytes of weights, activations, inputs and outputs; None if not counted.
        layers: what comparing its layers says, a sentence; empty if they were not compared.
        by_call: samples with the sizes of each call that counts, whose mean ``samples`` are; empty if sizes are known.
    """

    status: Status
    samples: tuple[float, ...] = ()
    error: float | None = None
    message: str = ""
    memory: int | None = None
    layers: str = ""
    by_call: tuple[tuple[float, ...], ...] = ()

    @property
    def seconds(self) -> float:
        """Typical time of one inference."""
        return typical_time(self.samples)

    @staticmethod
    def failed(error: SartorError) -> NetRun:
        """A run that gave no result."""
        is_memory = OUT_OF_MEMORY_SIGN.search(str(error)) is not None
        return NetRun(Status.OUT_OF_MEMORY if is_memory else Status.CRASHED, message=str(error))

    @staticmethod
    def joined(runs: Sequence[NetRun]) -> NetRun:
        """Join runs of one network in several processes: a failure if there is one, else the median run."""
        failed = next((run for run in runs if run.status is not Status.OK), None)
        if failed is not None:
            return failed
        middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
        # Only the first process counts memory.
        return replace(runs[0], samples=middle.samples)


@dataclass(frozen=True)
class Example:
    """Inputs of one inference, and its reference outputs.

    Attributes:
        feeds: one array per input.
        outputs: the right outputs in order.
        scales: for each output, an array by which differences are divided.
    """

    feeds: Mapping[str, Array]
    outputs: Sequence[Array]
    scales: Sequence[Array]


@dataclass(frozen=True)
class NetTrial:
    """Networks to compare.

    Attributes:
        nets: files; all take and give the same values.
        values: network inputs and outputs.
        example: inputs and what is right.
        settings: device, threads, rounds; ``max_error`` is the whole network's.
    """

    nets: Sequence[NetFiles]
    values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]]
    example: Example
    settings: MeasureSettings


def profile_nets(trial: NetTrial) -> list[NetRun]:
    """Worker side: as ``time_nets``, with the memory that networks on a CPU take."""
    runs = time_nets(trial)
    if not is_cpu(trial.settings.device):
        return runs
    signature = net_signature(trial.values)
    return [
        replace(run, memory=_memory(net, signature, trial.example))
        if run.status is Status.OK and all(map(is_cpu, net.devices))
        else run
        for net, run in zip(trial.nets, runs, strict=True)
    ]


def time_nets(trial: NetTrial) -> list[NetRun]:
    """Worker side: run compiled networks on the same inputs, check each, and time them in turn.

    Raises:
        DeviceError: if a network fails on a GPU, which may be lost for all that run in this process.
    """
    checked = _load_all(trial)
    sessions = {index: session for index, (session, _) in enumerate(checked) if session is not None}
    away = {index for index, net in enumerate(trial.nets) if net.devices and net.devices[0] != trial.settings.device}
    samples = _time_in_turn(sessions, trial.example.feeds, trial.settings, away)
    return [replace(run, samples=samples.get(index, ())) for index, (_, run) in enumerate(checked)]


def time_with_threads(trial: NetTrial, counts: Sequence[int]) -> list[tuple[float, ...]] | WorkerError:
    """Worker side: time networks in turn, each with a number of CPU threads of its own; returns samples of each."""
    signature = net_signature(trial.values)
    try:
        devices = [net.open_device(trial.settings.device, count) for net, count in zip(trial.nets, counts, strict=True)]
        sessions = {
            index: Session(net.module, device=device, signature=signature, parameters=net.parameters)
            for index, (net, device) in enumerate(zip(trial.nets, devices, strict=True))
        }
        for session in sessions.values():
            session.settle()
        in_turn = _time_in_turn(sessions, trial.example.feeds, trial.settings)
        return [in_turn[index] for index in range(len(counts))]
    except DeviceError as failure:
        return WorkerError(failure)


def _memory(net: NetFiles, signature: Signature, example: Example) -> int | None:
    """Bytes of memory that a network uses; mapped weights count like copied ones."""
    allocated = allocated_bytes(net.module, example.feeds, signature, net.parameters)
    if allocated is None:
        return None
    return allocated.peak + (net.weight_bytes if allocated.loaded < net.weight_bytes else 0)


@dataclass(frozen=True)
class FirstSamples:
    """Seconds from opening a network's file to the end of its first inference, of the same rounds.

    Attributes:
        dropped: where the file is not in the page cache.
        in_memory: where it is.
    """

    dropped: tuple[float, ...]
    in_memory: tuple[float, ...]


def time_first(trial: NetTrial) -> list[FirstSamples]:
    """Worker side: times the first inference of each network, with its file dropped from the page cache and in it.

    The device is already open and the runtime loaded, as both cost every network the same. No samples if the system
    cannot drop files from the page cache.

    Raises:
        DeviceError: if a network does not run.
    """
    devices = [net.open_device(trial.settings.device, trial.settings.threads) for net in trial.nets]
    samples: list[list[tuple[float, float]]] = [[] for _ in trial.nets]
    signature = net_signature(trial.values)
    for index in [*range(len(trial.nets))] * _FIRST_ROUNDS:
        net = trial.nets[index]
        if not all(drop_page_cache(path) for path in (net.module, net.weights) if path is not None):
            continue
        # The first of them leaves the file in the page cache.
        dropped, in_memory = (_time_first(net, devices[index], signature, trial.example) for _ in range(2))
        samples[index].append((dropped, in_memory))
    return [FirstSamples(tuple(one for one, _ in taken), tuple(other for _, other in taken)) for taken in samples]


def _time_first(net: NetFiles, device: NativeDevice, signature: Signature, example: Example) -> float:
    begin = time.perf_counter()
    # As users load it: the file is read while the first inference runs.
    with Session(net.module, device=device, signature=signature, parameters=net.parameters) as session:
        session.run(None, dict(example.feeds))
        return time.perf_counter() - begin


def _load_all(trial: NetTrial) -> list[tuple[Session | None, NetRun]]:
    signature = net_signature(trial.values)
    return [_check(net, signature, trial.example, trial.settings) for net in trial.nets]


def _check(
    net: NetFiles, signature: Signature, example: Example, settings: MeasureSettings
) -> tuple[Session | None, NetRun]:
    """Load a network and check one inference; returns its run, and the session if its outputs are right.

    Raises:
        DeviceError: as ``time_nets``.
    """
    max_error = settings.max_error
    try:
        device = net.open_device(settings.device, settings.threads)
        session = Session(net.module, device=device, signature=signature, parameters=net.parameters)
        outputs = session.run(None, dict(example.feeds))
        session.settle()
    except DeviceError as failure:
        if not all(map(is_cpu, (settings.device, *net.devices))):
            raise
        return None, NetRun.failed(failure)
    error = relative_error(outputs, example.outputs, scales=example.scales)
    where = worst_output(signature, outputs, example.outputs, example.scales) if error else ""
    if error > max_error:
        message = f"relative error {error:.2g}{where} against the reference, allowed is {max_error:.2g}"
        return None, NetRun(Status.WRONG_RESULT, error=error, message=message)
    return session, NetRun(Status.OK, (), error, where)


def told_output(message: str) -> str:
    """What the message of a run says about the output with the largest error, ``" in output 'y'"``, or nothing."""
    match = _IN_OUTPUT.search(message)
    return match[0] if match else ""


def worst_output(
    signature: Signature, outputs: Sequence[Array], reference: Sequence[Array], scales: Sequence[Array]
) -> str:
    """The output with the largest error, as ``told_output`` finds it; nothing if the number of outputs is wrong."""
    if len(outputs) != len(reference):
        return ""
    errors = output_errors(outputs, reference, scales=scales)
    return f" in output '{signature.outputs[errors.index(max(errors))].name}'" if errors else ""


def _time_in_turn(
    sessions: Mapping[int, Session],
    feeds: Mapping[str, Array],
    settings: MeasureSettings,
    away: Collection[int] = (),
) -> dict[int, tuple[float, ...]]:
    """Round-robin; a network that is much slower than the best is run twice only, others in blocks after that.

    In a block the caches are as the network's own runs leave them, as in a program that does nothing else. On a CPU
    sessions are called as users call them, so that commands that they keep, and memory, are used as there. So are
    networks that are ``away``: they run on another device than that of inputs and outputs, which are moved.
    """
    clock = clock_of(settings.device)
    on_host = is_cpu(settings.device)
    turns = {
        index: _Turns(session, feeds, clock, takes_arrays=on_host or index in away)
        for index, session in sessions.items()
    }
    active, started = [*turns.values()], time.perf_counter()
    for trial in active * _TRIALS:
        trial.run(0)
    best = min((min(trial.samples) for trial in active), default=0.0)
    active = [trial for trial in active if min(trial.samples) <= settings.hopeless * best]
    block = _block(settings, best)
    # As many as there is time left for in a round, but for one that is not timed.
    left, together = settings.seconds - (time.perf_counter() - started), sum(min(trial.samples) for trial in active)
    block = max(0, min(block, math.ceil(left / together) - 2)) if together else block
    for trial in active if block else ():
        trial.forget()
    for done in range(settings.rounds - (0 if block else _TRIALS)):
        if time.perf_counter() - started > settings.seconds and (done or not block):
            break
        for trial in reversed(active) if done % 2 else active:
            trial.run(block)
    samples = {index: turn.samples for index, turn in turns.items()}
    rates = {index: turn.rates for index, turn in turns.items()}
    return steady(
        samples, rates, lambda index: turns[index].taken(block if turns[index] in active else 0), settings.seconds
    )


def _block(settings: MeasureSettings, best: float) -> int:
    """The number of runs in a block, by the seconds of the fastest; 0 for single runs."""
    if not settings.block or not best:
        return settings.block
    return max(settings.block, min(math.ceil(_BLOCK_SECONDS / best), _MOST_IN_A_BLOCK))


class _Turns:
    """A network that is timed in turn with others.

    Attributes:
        samples: seconds.
        rates: of the device's clock, for each sample; None where it is not known.
    """

    def __init__(
        self, session: Session, feeds: Mapping[str, Array], clock: ReadClock | None, *, takes_arrays: bool
    ) -> None:
        """What times a session, which ``takes_arrays`` of the host or has them on its device already."""
        self._session = session
        self._clock = clock
        self._feeds = dict(feeds)
        self._takes_arrays = takes_arrays
        self._arrays = {} if takes_arrays else {name: session.to_device(array) for name, array in feeds.items()}
        self.samples: list[float] = []
        self.rates: list[float | None] = []

    def run(self, block: int) -> None:
        """Note a sample."""
        seconds, rate = self.taken(block)
        self.samples.append(seconds)
        self.rates.append(rate)

    def forget(self) -> None:
        """Drop all samples."""
        self.samples.clear()
        self.rates.clear()

    def taken(self, block: int) -> ClockedSample:
        """A sample: the median of ``block`` runs after an untimed one, or a single run if 0."""
        if block:
            self._seconds()
        seconds = median(self._seconds() for _ in range(max(block, 1)))
        return seconds, self._clock() if self._clock is not None else None

    def _seconds(self) -> float:
        return timed(self._run, on_this_thread=self._session.device.blocking).seconds

    def _run(self) -> None:
        if self._takes_arrays:
            self._session.run(None, self._feeds)
        else:
            self._session.run_device(None, self._arrays)
