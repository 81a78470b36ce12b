"""Worker side: run the variants of one case, check their results, and time the right ones in turn.

Variants that are hopelessly slow are dropped after two rounds.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from sartor.devices import is_cpu
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.mapping.heap import extend_heap
from sartor.runtime.module import open_module
from sartor.tuning.measuring.benchmark_case import PROBE, BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.checking import Arbiter, Checker
from sartor.tuning.measuring.runs.gpu_clock import ReadClock, clock_of
from sartor.tuning.measuring.runs.steady_clock import ClockedRuns
from sartor.tuning.measuring.runs.variant_runner import TimedRunner, VariantRunner
from sartor.tuning.records.measurement import NO_TIME, Status


@dataclass(frozen=True)
class MeasureSettings:
    """Limits on the time of measuring, and on errors.

    Attributes:
        device: as ``open_device`` takes it.
        threads: CPU workers.
        max_error: largest relative error against candidate 0, or the reference that replaces it.
        rounds: samples of a variant that is not dropped.
        seconds: no further round begins after this time, once a minimum of rounds is done.
        hopeless: a variant this many times slower than the best is dropped after two rounds.
        block: consecutive runs of a whole network, after one that is not timed; a sample is their median. 0 means
            single runs, as for variants of a layer.
    """

    device: str
    threads: int
    max_error: float
    rounds: int = 12
    seconds: float = 1.0
    hopeless: float = 1.6
    block: int = 0


@dataclass(frozen=True)
class VariantSamples:
    """Status, samples and error of one variant.

    Attributes:
        by_call, baseline_by_call: samples of open sizes with those of each call that counts, of which ``samples`` and
            ``baseline`` are the mean.
    """

    status: Status
    samples: tuple[float, ...] = ()
    baseline: tuple[float, ...] = ()
    error: float | None = None
    message: str = ""
    packed_bytes: int = 0
    by_call: tuple[tuple[float, ...], ...] = ()
    baseline_by_call: tuple[tuple[float, ...], ...] = ()

    def at_pace(self, slowness: float) -> VariantSamples:
        """The times that a machine would have measured that takes ``1 / slowness`` times as long."""
        if slowness == 1.0:
            return self

        def paced(samples: Iterable[float]) -> tuple[float, ...]:
            return tuple(seconds / slowness for seconds in samples)

        by_call, baseline_by_call = (tuple(map(paced, taken)) for taken in (self.by_call, self.baseline_by_call))
        return replace(
            self,
            samples=paced(self.samples),
            baseline=paced(self.baseline),
            by_call=by_call,
            baseline_by_call=baseline_by_call,
        )


_SURE_ROUNDS = 2
_LEAST_ROUNDS = 4
# After a single run, which may have been disturbed, and once there are enough to tell.
_PLAINLY_HOPELESS = 2.5
_NEARLY_HOPELESS = 1.25
_CHEAP_SECONDS = 0.01
_MINIMUM_SECONDS = 0.02
_PROBE_CALLS = 200
_PROBE_SECONDS = 0.5


@functools.cache
def _device(name: str, threads: int) -> NativeDevice:
    """One device per worker: opening one starts threads.

    Large results are allocated for each run. A session extends the heap, so that their pages stay; else the C library
    gives them back after some runs and not after others, and variants differ by what it takes to bring them in.
    """
    if is_cpu(name):
        extend_heap()
    return open_device(name, threads if is_cpu(name) else None)


@functools.cache
def call_overhead(probe: Path, name: str, threads: int) -> float:
    """Seconds of a call other than its dispatches; layers in a network do not have that cost.

    Args:
        probe: the compiled ``PROBE``.
        name: of the device.
        threads: of a CPU.

    Raises:
        DeviceError: if the device fails.
    """
    runner = _prober(probe, _device(name, threads))
    runner.outputs()
    runner.calls = 1
    taken, end = [runner.uninterrupted()], time.perf_counter() + _PROBE_SECONDS
    while len(taken) < _PROBE_CALLS and time.perf_counter() < end:
        taken.append(runner.uninterrupted())
    return float(np.median(taken))


def _prober(probe: Path, device: NativeDevice) -> VariantRunner:
    """Runs ``PROBE`` on a device.

    Raises:
        DeviceError: if the device does not work.
    """
    program = Program(open_module(probe).native, probe.name, device, {})
    return VariantRunner(PROBE, PROBE.variants[0], program, device, CaseData(PROBE))


def measure_case(
    case: BenchmarkCase,
    modules: Mapping[str, Path],
    settings: MeasureSettings,
    probe: Path,
    arbiter: Arbiter | None = None,
) -> dict[str, VariantSamples]:
    """Check and time the compiled variants of a case; results by descriptor.

    Args:
        case: what was compiled.
        modules: descriptor to the file that runs the variant.
        settings: how to measure.
        probe: the compiled ``PROBE``, whose time is the cost of a call.
        arbiter: computes reference results if candidate 0 is missing or variants differ from it; None for none.

    Raises:
        DeviceError: if the device fails while variants are timed, or does not work any more.
    """
    overhead = call_overhead(probe, settings.device, settings.threads)
    device = _device(settings.device, settings.threads)
    programs = {path: Program(open_module(path).native, path.name, device, {}) for path in set(modules.values())}
    available = {name: programs[path] for name, path in modules.items()}
    checked = Checker(case, available, device, settings.max_error).check(arbiter)
    if any(failure.status is Status.CRASHED for failure in checked.failures.values()):
        # If the device was lost, variants that come after the faulty one fail too, and are not to blame.
        _prober(probe, device).outputs()
    failed = {
        name: VariantSamples(failure.status, error=failure.error, message=failure.message)
        for name, failure in checked.failures.items()
    }
    return failed | _timed(checked.runners, case.variants[0].descriptor, settings, overhead)


def _timed(
    runners: Mapping[str, TimedRunner], baseline: str, settings: MeasureSettings, overhead: float
) -> dict[str, VariantSamples]:
    runs = {name: functools.partial(runner.timed, overhead) for name, runner in runners.items()}
    least = {name: runner.least_seconds for name, runner in runners.items()}
    samples = time_at_steady_clock(runs, baseline, settings, least, clock_of(settings.device))
    return {
        name: _samples(
            runner, samples[name], None if name == baseline else runners.get(baseline), samples.get(baseline)
        )
        for name, runner in runners.items()
    }


def _samples(
    runner: TimedRunner, taken: tuple[float, ...], beside: TimedRunner | None, reference: tuple[float, ...] | None
) -> VariantSamples:
    """What was found of a variant ``beside`` candidate 0, None if it is that or there is none."""
    known = VariantSamples(Status.OK, taken, error=runner.error, packed_bytes=runner.packed_bytes)
    known = replace(known, by_call=runner.by_call)
    return known if beside is None else replace(known, baseline=reference or (), baseline_by_call=beside.by_call)


def time_at_steady_clock(
    runs: Mapping[str, Callable[[], float]],
    baseline: str,
    settings: MeasureSettings,
    least: Mapping[str, float],
    clock: ReadClock | None,
) -> dict[str, tuple[float, ...]]:
    """As ``time_in_turn``; samples that were taken while the device's ``clock`` was low are taken again, for at most as
    long."""
    if clock is None:
        return time_in_turn(runs, baseline, settings, least)
    clocked = ClockedRuns(runs, clock)
    samples = time_in_turn(clocked.by_name, baseline, settings, least)
    return clocked.steady(samples, max(settings.seconds, _MINIMUM_SECONDS))


def time_in_turn(
    runs: Mapping[str, Callable[[], float]],
    baseline: str,
    settings: MeasureSettings,
    least: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, tuple[float, ...]]:
    """Time runs round-robin: hopeless ones are dropped, the others continue until the rounds or the time end.

    The time of candidate 0 does not count towards the limit: it may take a thousand times as long as the best. A run
    that is known to be hopeless before it is timed has that time as its only sample.

    Args:
        runs: what to time; each returns the seconds of one call.
        baseline: candidate 0 among them.
        settings: rounds and limits.
        least: what is known of the seconds of runs: they take as long or longer.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    # A short run has hundreds of thousands of samples, which are not looked through again after each.
    shortest = dict.fromkeys(runs, math.inf)
    # Those that take long come last in the first round, in which they may prove hopeless.
    active, spent = sorted(runs, key=lambda name: least.get(name, 0.0)), 0.0
    for done in itertools.count(1):
        for name in active if done % 2 else reversed(active):
            begin = time.perf_counter()
            taken = None if done > 1 else _known_hopeless(least.get(name, 0.0), samples.values())
            samples[name].append(runs[name]() if taken is None else taken)
            shortest[name] = min(shortest[name], samples[name][-1])
            if name != baseline or len(active) == 1:
                spent += time.perf_counter() - begin
        enough = done >= settings.rounds and spent > _MINIMUM_SECONDS
        if not active or enough or (done >= _LEAST_ROUNDS and spent > settings.seconds):
            break
        active = _hopeful(active, samples, shortest, settings.hopeless, done)
    return {name: tuple(taken) for name, taken in samples.items()}


def _known_hopeless(least: float, samples: Iterable[list[float]]) -> float | None:
    """The least seconds of a run if they are far above the best of all samples; else None."""
    best = min((min(taken) for taken in samples if taken), default=math.inf)
    return least if least > max(_PLAINLY_HOPELESS * best, _CHEAP_SECONDS) else None


def _hopeful(
    active: list[str], samples: Mapping[str, list[float]], shortest: Mapping[str, float], hopeless: float, done: int
) -> list[str]:
    """Runs that may still turn out fastest after this round; very short ones are always run twice.

    A reshape, which takes no time, is no match for the others: it reads another layout, which may have to be made.
    """
    best = min((shortest[name] for name in active if shortest[name] > NO_TIME), default=math.inf)
    if done < _SURE_ROUNDS:
        return [variant for variant in active if samples[variant][0] <= max(_PLAINLY_HOPELESS * best, _CHEAP_SECONDS)]
    most = hopeless if done < _LEAST_ROUNDS else _NEARLY_HOPELESS
    return [variant for variant in active if shortest[variant] <= most * best]
