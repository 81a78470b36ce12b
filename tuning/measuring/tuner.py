"""Compiles and measures the variants that the store lacks, and reads stored measurements."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.digest import digest
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.source_digest import source_digest
from sartor.progress import tell_found
from sartor.tuning.measuring.asked_cases import AskedCases
from sartor.tuning.measuring.away import ArbiterWanted, absent, arbitrate, measure_away, only_seconds, runnable
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_compiler import CaseCompiler
from sartor.tuning.measuring.checking import Arbiter, allowed_error
from sartor.tuning.measuring.compile_job import CompiledCase, compile_cases
from sartor.tuning.measuring.measure_job import MeasureSettings, VariantSamples, measure_case
from sartor.tuning.measuring.runs.call_records import call_keys, mean_measurement, measurements_by_call
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, key_threads, runtime_key
from sartor.tuning.store.store import Store
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import Batch, JobResult, JobStatus, WorkerPool
from sartor.workspace import workspace

_LOG = logging.getLogger(__name__)
# Modules whose source measurements depend on, besides the variant's own code.
_JOBS = (compile_cases.__module__, measure_case.__module__)
_MEASURE = entry_point(measure_case)
_AWAY = entry_point(measure_away)
_ARBITRATE = entry_point(arbitrate)
# Cases of which all machines measure candidate 0, so that they can be compared.
_YARDSTICKS = 3
# With a deadline, cases are compiled and measured in groups of this size, as compiling without measuring is useless.
_HURRIED = 6


@dataclass(frozen=True)
class TuneSettings:
    """The target of tuning, and limits on time.

    Attributes:
        target: device and architecture.
        measure: how to measure.
        compile_timeout: seconds for compiling one case.
        measure_timeout: seconds for measuring one case.
        deadline: by ``time.monotonic()``; nothing is compiled or measured after it. None for no deadline.
    """

    target: Target
    measure: MeasureSettings
    compile_timeout: float = 120.0
    measure_timeout: float = 60.0
    deadline: float | None = None


_Failed = tuple[BenchmarkCase, JobResult]

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, the number of its parts that are done, and the number of all parts."""


Listener = Callable[[BenchmarkCase, Mapping[str, Measurement] | None], str]
"""Called with a case that was compiled and None, or that was measured and its measurements by descriptor; returns what
was found so far, for the user."""


class Tuner:
    """Measures cases into a store.

    Args:
        store: for measurements; each is committed at once.
        pool: workers that compile and measure.
        settings: target and limits.
        progress: told about every case.
        directory: for compiled cases, which can then be measured again beside others; None does not keep them.
        arbiter: returns what computes the reference results of a case without IREE, or None.
    """

    def __init__(
        self,
        store: Store,
        pool: WorkerPool,
        settings: TuneSettings,
        progress: Progress,
        directory: Path | None = None,
        arbiter: Callable[[BenchmarkCase], Arbiter | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._pool = pool
        self._settings = settings
        self._progress = progress
        self._directory = directory
        self._arbiter = arbiter
        self._modules: dict[tuple[str, str], Path] = {}
        # Variants that failed, and candidates 0 that are wrong: these are not compiled, run or compared with again.
        self._unfit: set[tuple[str, str]] = set()
        self._cut_off = False
        self._is_compared = False
        self._compiler = CaseCompiler(pool, settings.target, settings.compile_timeout, settings.deadline)
        self.listener: Listener = lambda *_: ""
        """Told about every case; what it returns is part of the report of progress."""

    def key(self, case: BenchmarkCase, descriptor: str) -> MeasurementKey:
        """The key under which a variant of a case is stored."""
        variant = next(variant_of_case for variant_of_case in case.variants if variant_of_case.descriptor == descriptor)
        return MeasurementKey(
            task=case.stored_key,
            variant=descriptor,
            source=digest(variant.implementation.digest, source_digest(*_JOBS)),
            hardware=self._store.hardware,
            threads=key_threads(self._settings.target.device, self._settings.measure.threads),
            runtime=runtime_key(),
            backend=self._settings.target.key,
        )

    @property
    def max_error(self) -> float:
        """Largest relative error of a variant that does not round to a narrower type."""
        return self._settings.measure.max_error

    def known(self, cases: Iterable[BenchmarkCase]) -> dict[str, dict[str, Measurement]]:
        """Stored measurements by case key and descriptor, with statuses by this compilation's bound on the error."""
        listed = list(cases)
        keys = {
            (case.key, variant.descriptor): (variant, self.key(case, variant.descriptor))
            for case in listed
            for variant in case.variants
        }
        stored = dict(self._store.get_many(key for _, key in keys.values()))
        opened = [
            (case, keys[case.key, variant.descriptor][1]) for case in listed if case.calls for variant in case.variants
        ]
        stored |= self._means([(case, key) for case, key in opened if key not in stored])
        known: dict[str, dict[str, Measurement]] = {case.key: {} for case in listed}
        for (case_key, descriptor), (variant, key) in keys.items():
            judged = self._judged(variant, stored[key]) if key in stored else None
            if judged is not None:
                known[case_key][descriptor] = judged
        return known

    def _means(self, missing: Sequence[tuple[BenchmarkCase, MeasurementKey]]) -> dict[MeasurementKey, Measurement]:
        """Means over calls whose sizes were measured with other shares, which are stored like others."""
        means: dict[MeasurementKey, Measurement] = {}
        derived: list[Measurement] = []
        for case, key in missing:
            mean = mean_measurement(case, key, self._store.get_many(call_keys(case, key)))
            if mean is not None:
                means[key] = mean
                # That of a single call is stored already.
                derived += [mean] if len(case.timed) > 1 else []
        if derived:
            self._store.put_many(derived)
        return means

    def _judged(self, variant: Variant, measurement: Measurement) -> Measurement | None:
        """A stored measurement with its status by this compilation's bound; None if it is right now but has no time."""
        if measurement.error is None or measurement.status not in (Status.OK, Status.WRONG_RESULT):
            return measurement
        allowed = allowed_error(variant, self._settings.measure.max_error)
        if measurement.error <= allowed:
            return measurement if measurement.status is Status.OK else None
        if measurement.status is Status.WRONG_RESULT:
            return measurement
        message = f"relative error {measurement.error:.2g}, allowed is {allowed:.2g}"
        return replace(measurement, status=Status.WRONG_RESULT, message=message)

    def measure(self, cases: Iterable[BenchmarkCase]) -> dict[str, dict[str, Measurement]]:
        """Measure what is not stored; returns all measurements, failures included, by case key and descriptor.

        If the deadline passes, some are missing. A case may be listed several times.
        """
        listed = [*{case.key: case for case in cases}.values()]
        known = self.known(listed)
        self.measure_anew(case for case in listed if len(known[case.key]) < len(case.variants))
        return self.known(listed)

    def measure_anew(self, cases: Iterable[BenchmarkCase]) -> None:
        """Measure all variants of each case beside each other, in the order of the cases, until the deadline.
        Variants that this tuner compiled before are not compiled again, if it has a directory.
        """
        missing = list(cases)
        size = len(missing) if self._settings.deadline is None else _HURRIED
        for start in range(0, len(missing), max(size, 1)):
            if not self.is_late:
                self._measure_in_directory(missing[start : start + size])

    def _measure_in_directory(self, cases: list[BenchmarkCase]) -> None:
        if self._directory is not None:
            self._measure(cases, self._directory)
            return
        with workspace() as directory:
            self._measure(cases, directory)
            self._modules.clear()

    @property
    def target(self) -> Target:
        """What is compiled for and measured on."""
        return self._settings.target

    @property
    def progress(self) -> Progress:
        """Who is told about every case."""
        return self._progress

    @property
    def store(self) -> Store:
        """The store of measurements."""
        return self._store

    @property
    def is_bounded(self) -> bool:
        """Whether there is a deadline."""
        return self._settings.deadline is not None

    @property
    def deadline(self) -> float | None:
        """The deadline, by ``time.monotonic()``."""
        return self._settings.deadline

    @property
    def at_once(self) -> int:
        """Number of compilations at a time."""
        return self._compiler.at_once

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed, or jobs were left out because of it."""
        deadline = self._settings.deadline
        return self._cut_off or (deadline is not None and time.monotonic() >= deadline)

    def is_quiet(self) -> bool:
        """Whether other programs leave enough processors where this tuner measures, in the second that this takes."""
        return self._pool.is_quiet()

    def has_compiled(self, case: BenchmarkCase, descriptor: str) -> bool:
        """Whether this tuner has a variant's compiled module."""
        return (case.key, descriptor) in self._modules

    def probe(self) -> Path:
        """The compiled probe.

        Raises:
            CompileError: if it does not compile.
            ValueError: if this tuner keeps no modules.
        """
        return self._compiler.probe(self._kept())

    def _kept(self) -> Path:
        if self._directory is None:
            raise ValueError("this tuner has no directory for modules")
        return self._directory

    def modules_of(self, cases: Sequence[BenchmarkCase]) -> dict[tuple[str, str], Path]:
        """The compiled modules of variants by case key and descriptor, of those that compile.

        Raises:
            ValueError: if this tuner keeps no modules.
        """
        for done, _ in enumerate(self._compile(cases, self._kept()), 1):
            self._progress("compiling", done, len(cases))
        names = [(case.key, variant.descriptor) for case in cases for variant in case.variants]
        return {name: self._modules[name] for name in names if name in self._modules and name not in self._unfit}

    def _measure(self, cases: list[BenchmarkCase], directory: Path) -> None:
        """Measure each case; if a case crashed or hung, measure its variants one by one to find the faulty one, also a
        single one: what it was measured beside may be at fault.
        A variant alone with candidate 0 cannot outvote it, and without candidate 0 there is no reference. In both cases
        all variants that run are measured together again. Each is compiled once more, in a module of its own, and so is
        the probe: code that cannot be loaded takes all that is in its module with it.
        """
        apart = {case.key: case for case, _ in self._attempt(cases, directory)}.values()
        if apart:
            self._compiler.part_probe()
        for case in apart:
            for variant in case.variants:
                self._modules.pop((case.key, variant.descriptor), None)
        for parts in ([_alone(case) for case in apart], [pair for case in apart for pair in _pairs(case)]):
            for case, result in self._attempt(parts, directory):
                self._blame(case, result)
        self._attempt([self._running(case) for case in apart if self._is_doubtful(case)], directory)

    def _is_doubtful(self, case: BenchmarkCase) -> bool:
        """Whether candidate 0 failed, or a variant differs from it."""
        measurements = self.known([case])[case.key]
        first = measurements.get(case.variants[0].descriptor)
        differs = any(measurement.status is Status.WRONG_RESULT for measurement in measurements.values())
        return differs or first is None or first.status is not Status.OK

    def _running(self, case: BenchmarkCase) -> BenchmarkCase:
        """The case with candidate 0 and all other variants that run."""
        first, *others = case.variants
        return replace(case, variants=(first, *(other for other in others if self._runs(case, other.descriptor))))

    def _attempt(self, cases: list[BenchmarkCase], directory: Path) -> list[_Failed]:
        """Compile and measure cases; returns those whose worker crashed or hung, with the job's result.

        What is measured elsewhere is measured while other cases are compiled.
        """
        failed: list[_Failed] = []
        if self._pool.measures_elsewhere:
            self._compiler.probe(directory)
        with self._batch() as batch:
            asked = AskedCases(batch)
            for done, (case, result) in enumerate(self._compile(cases, directory), 1):
                self._progress("compiling", done, len(cases))
                tell_found(self._progress, self.listener(case, None))
                if result.status is not JobStatus.OK:
                    failed.append((case, result))
                elif batch.is_early and self._is_ready(case):
                    self._ask(asked, case, directory)
                self._take(asked, batch.ready(), failed)
            for case in cases:
                if case not in asked and self._is_ready(case):
                    self._ask(asked, case, directory)
            self._compare_machines(asked, directory, least=1)
            self._take(asked, batch.rest(), failed)
        self._cut_off |= asked.lacks_results
        self._measure_arbitrated(asked.disputed, directory, failed)
        return failed

    def _batch(self) -> AbstractContextManager[Batch]:
        away, timeout = self._pool.measures_elsewhere, self._settings.measure_timeout
        return self._pool.batch(_AWAY if away else _MEASURE, timeout, self._settings.deadline)

    def _ask(self, asked: AskedCases, case: BenchmarkCase, directory: Path) -> None:
        arbiter = self._arbiter(case)
        given = absent(arbiter) if self._pool.measures_elsewhere else arbiter
        asked.add(case, {**self._measuring(case, directory), "arbiter": given})
        self._compare_machines(asked, directory, least=_YARDSTICKS)

    def _take(self, asked: AskedCases, results: Iterable[JobResult], failed: list[_Failed]) -> None:
        """Store results as they arrive."""
        for result in results:
            case = asked.answered(result)
            if result.status is not JobStatus.OK:
                failed.append((case, result))
            elif isinstance(result.value, ArbiterWanted):
                asked.disputed.append(case)
            else:
                self._progress("measuring", asked.done, asked.count)
                for descriptor, samples in result.value.items():
                    self._put(case, descriptor, samples.at_pace(result.slowness), result.others)
                tell_found(self._progress, self.listener(case, self.known([case])[case.key]))

    def _measure_arbitrated(self, cases: Sequence[BenchmarkCase], directory: Path, failed: list[_Failed]) -> None:
        """Measure cases elsewhere whose variants disagree, with the answers of their arbiters."""
        jobs = [(str(index), {"case": case, "arbiter": self._arbiter(case)}) for index, case in enumerate(cases)]
        with self._batch() as batch:
            asked = AskedCases(batch)
            for answer in self._pool.map_unordered(_ARBITRATE, jobs, self._settings.measure_timeout):
                case = cases[int(answer.job_id)]
                # Without an answer, which is no result either, the majority decides.
                asked.add(case, {**self._measuring(case, directory), "arbiter": answer.value})
            self._take(asked, batch.rest(), failed)
        self._cut_off |= asked.lacks_results

    def _compare_machines(self, asked: AskedCases, directory: Path, least: int) -> None:
        """Let all machines measure candidate 0 of the first cases, once there are some."""
        if self._pool.measures_elsewhere and asked.count >= least and not self._is_compared:
            cases = [_alone(case) for case in asked.cases if self._runs(case, case.variants[0].descriptor)]
            jobs = [(case.key, {**self._measuring(case, directory), "arbiter": None}) for case in cases[:_YARDSTICKS]]
            self._is_compared = bool(jobs)
            self._pool.compare_machines(_AWAY, jobs, self._settings.measure_timeout, only_seconds)

    def _compile(self, cases: Sequence[BenchmarkCase], directory: Path) -> Iterator[tuple[BenchmarkCase, JobResult]]:
        """Compile what is not compiled yet; without a deadline the largest cases first: workers then end together.

        A case that is a large part of all work is compiled in pieces, side by side. It comes with the result of one of
        them, of one that failed if there is any.
        """
        wanted = [(case, left) for case in cases if (left := self._without_known(case)).variants]
        if self._settings.deadline is None:
            wanted.sort(key=lambda pair: -len(pair[1].variants))
        pieces = self._compiler.pieces([left for _, left in wanted])
        waiting = Counter(index for index, _ in pieces)
        broken: dict[int, JobResult] = {}
        for number, compiled, result in self._compiler.compile([piece for _, piece in pieces], directory):
            index, _ = pieces[number]
            case, _ = wanted[index]
            if compiled is None:
                broken[index] = result
            else:
                self._modules |= {(case.key, name): path for name, path in compiled.modules.items()}
                self._record_rejected(case, compiled)
            waiting[index] -= 1
            if not waiting[index]:
                yield case, broken.get(index, result)
        self._cut_off |= any(waiting.values())

    def _without_known(self, case: BenchmarkCase) -> BenchmarkCase:
        """The case with the variants that are neither compiled nor known to fail."""
        names = [variant.descriptor for variant in case.variants]
        known = {name for name in names if self.has_compiled(case, name) or (case.key, name) in self._unfit}
        return replace(case, variants=tuple(variant for variant in case.variants if variant.descriptor not in known))

    def _runs(self, case: BenchmarkCase, descriptor: str) -> bool:
        return self.has_compiled(case, descriptor) and (case.key, descriptor) not in self._unfit

    def _is_ready(self, case: BenchmarkCase) -> bool:
        return any(self._runs(case, variant.descriptor) for variant in case.variants)

    def _measuring(self, case: BenchmarkCase, directory: Path) -> dict[str, object]:
        """Arguments of the job that measures the compiled variants of a case."""
        names = [variant.descriptor for variant in case.variants if self._runs(case, variant.descriptor)]
        modules = {name: self._modules[case.key, name] for name in names}
        sent = runnable(case) if self._pool.measures_elsewhere else case
        return {
            "case": sent,
            "modules": modules,
            "settings": self._settings.measure,
            "probe": self._compiler.probe(directory),
        }

    def _record_rejected(self, case: BenchmarkCase, compiled: CompiledCase) -> None:
        for descriptor, message in compiled.failures.items():
            self._put(case, descriptor, VariantSamples(Status.COMPILE_FAILED, message=message))

    def _blame(self, case: BenchmarkCase, result: JobResult) -> None:
        """Record a failure of a case as that of its last variant, which ran alone or beside candidate 0."""
        status = Status.CRASHED if result.status is JobStatus.FAILED else Status(result.status.value)
        self._put(case, case.variants[-1].descriptor, VariantSamples(status, message=result.message))

    def _set_aside(self, case: BenchmarkCase, descriptor: str, samples: VariantSamples) -> None:
        """Exclude a variant from later runs. A failing candidate 0 is an error of IREE, which is logged."""
        known, arbiter = len(self._unfit), self._arbiter(case)
        self._unfit.add((case.key, descriptor))
        is_news = len(self._unfit) > known and not samples.status.is_transient
        if arbiter is not None and descriptor == case.variants[0].descriptor and is_news:
            reason = samples.message.partition("\n")[0]
            _LOG.warning("stock IREE fails on layer '%s' (%s): %s", arbiter.layer, samples.status, reason)

    def _put(self, case: BenchmarkCase, descriptor: str, samples: VariantSamples, others: float = 0.0) -> None:
        is_first = descriptor == case.variants[0].descriptor
        if samples.status is not Status.OK and (is_first or samples.status is not Status.WRONG_RESULT):
            self._set_aside(case, descriptor, samples)
        whole = Measurement(
            key=self.key(case, descriptor),
            status=samples.status,
            samples=samples.samples,
            baseline_samples=samples.baseline,
            error=samples.error,
            message=samples.message,
            packed_bytes=samples.packed_bytes,
            facts=case.facts,
            foreign_load=others,
        )
        by_call = measurements_by_call(case, whole, samples.by_call, samples.baseline_by_call)
        self._store.put_many([whole, *by_call])


def _alone(case: BenchmarkCase) -> BenchmarkCase:
    """The case with candidate 0 only."""
    return replace(case, variants=case.variants[:1])


def _pairs(case: BenchmarkCase) -> list[BenchmarkCase]:
    """A case of candidate 0 and one other variant, for each of the others."""
    first, *others = case.variants
    return [replace(case, variants=(first, other)) for other in others]
