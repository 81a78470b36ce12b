"""Runs whole networks in a worker, and compares them with ONNX Runtime on the user's file."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.linking.names import PARAMETER_SCOPE
from sartor.errors import CompileError, DeviceError, DisturbedError
from sartor.frontend.kept_import import HashedImport
from sartor.profiling.builder import Build, Builder
from sartor.profiling.layers.dispatch_job import dispatches_in_worker
from sartor.profiling.layers.prefix_timing import PrefixTimer
from sartor.profiling.reference_example import ReferenceExample
from sartor.profiling.verdicts import provisional
from sartor.profiling.verifier import Verifier
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import MeasureKind
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.networks.profile_job import (
    FirstSamples,
    NetRun,
    NetTrial,
    profile_nets,
    time_first,
    time_nets,
    time_with_threads,
)
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.calls import call

_LOG = logging.getLogger(__name__)
_Run = TypeVar("_Run")
# With IREE's profiler a run takes three times as long, and there are two passes.
_STATISTICS_SECONDS = 0.3
_LEAST_RUNS, _MOST_RUNS = 3, 50
# Loaded again, at other addresses, the same network's time differs by up to a tenth.
_PASSES, _ROUNDS, _BLOCK = 3, 6, 4
# Of a network that is compared with none: others run beside it once more. Within a time budget, in the same order.
_ROUNDS_ALONE = 3
_HURRIED_ROUNDS, _HURRIED_ROUNDS_ALONE = 3, 1
# A network that is slower than the best by more than this in one process is not run in others.
_NEAR = 1.15
# The time of networks that fit the second-level cache does not depend on their addresses.
_SMALL_BYTES = 1 << 20
# A pass that takes more seconds is not repeated.
_LONG_SECONDS = 60.0


class NetRunner:
    """Runs builds of one model on its sample inputs.

    Each build is checked on the first sample before it is timed. If that is the only sample, and the measure is the
    relative error, this decides whether the build is right; otherwise ``verify`` does.

    Args:
        builder: compiled the builds.
        samples: inputs.
        budget: the error budget.
        is_hurried: whether there is no time to run networks to compare in several processes.
        example: the first sample with its reference outputs; None to compute them.
    """

    def __init__(
        self,
        builder: Builder,
        samples: SampleSet,
        budget: ErrorBudget,
        *,
        is_hurried: bool = False,
        example: ReferenceExample | None = None,
    ) -> None:
        self._builder = builder
        self._imported = builder.imported
        self._target = builder.header.target
        self._samples = samples
        self._budget = budget
        self._measure = budget.measure
        self._is_hurried = is_hurried
        self._is_relative = self._measure.kind is MeasureKind.RELATIVE
        self._prefixes = PrefixTimer(builder)
        self._example = example or ReferenceExample(
            builder.imported,
            samples,
            builder.pool,
            builder.progress,
            self._target.threads,
            narrow=budget.narrow,
            kept=builder.imports,
        )
        self._verifier = Verifier(builder, samples, budget, self._example)
        self._alone: dict[str, list[tuple[Dispatch, ...]]] = {}

    def with_builder(self, builder: Builder) -> NetRunner:
        """A runner of another builder's networks of the model, on the same samples."""
        hurried = self._is_hurried
        return NetRunner(builder, self._samples, self._budget, is_hurried=hurried, example=self._example)

    @property
    def builder(self) -> Builder:
        """What compiled the builds."""
        return self._builder

    @property
    def budget(self) -> ErrorBudget:
        """The bound on the error."""
        return self._budget

    @property
    def criterion(self) -> str:
        """Identifies the measure and the samples: stored errors are valid only with the same criterion."""
        return f"{self._measure.identity} {self._budget.narrow} {self._samples.digest}"

    @property
    def reference(self) -> str:
        """Who computed what modules were compared with, as messages say it; empty before it ran."""
        return self._example.described

    @property
    def unvouched(self) -> tuple[str, ...]:
        """Why nobody but the rewritten model vouches for modules, one sentence each; empty if that is not so."""
        return self._example.unvouched

    @property
    def verifies(self) -> bool:
        """Whether builds must be verified after they were run."""
        return len(self._samples) > 1 or not self._is_relative

    @property
    def verified_count(self) -> int:
        """Number of samples on which errors are measured."""
        return self._verifier.count

    def verify(self, build: Build) -> NetRun:
        """Measure the error on all samples; the run is not judged yet (``Verifier.verify``)."""
        return self._verifier.verify(build)

    def judged(self, build: Build) -> NetRun:
        """``verify`` and judge the run (``Verifier.judged``)."""
        return self._verifier.judged(build)

    def judged_and_kept(self, build: Build) -> NetRun:
        """As ``judged``; the import and ONNX Runtime's outputs are kept for later compilations if it is right."""
        run = self.judged(build)
        if run.status is Status.OK and (hashed := self._builder.hashed_import()) is not None:
            self.keep(hashed)
        return run

    def keep(self, hashed: HashedImport) -> None:
        """Keep the imported model and ONNX Runtime's outputs for later compilations."""
        self._builder.keep_import(hashed)
        self._example.keep(hashed.key)

    def begin_ahead(self) -> None:
        """Begin to compute the reference outputs beside what the pool does (``ReferenceExample.begin_ahead``)."""
        self._example.begin_ahead()

    def begin(self) -> None:
        """Compute the reference outputs, while no worker is busy (``ReferenceExample.begin``)."""
        self._example.begin()

    def profile(self, builds: Sequence[Build]) -> dict[str, NetRun]:
        """Check the builds and time them in turn; returns runs by digest of the build.

        If there are several, they are loaded again in several processes, as their times depend on their addresses.

        Raises:
            DisturbedError: if the worker was disturbed.
            ReferenceFailedError: if ONNX Runtime crashes.
        """
        _ = self._example.value
        started = time.monotonic()
        runs = {build: [run] for build, run in self._survived(profile_nets, builds).items()}
        near = self._near(builds, {build: run for build, (run,) in runs.items()})
        if len(near) > 1 and time.monotonic() - started < _LONG_SECONDS:
            for _ in range(self.passes - 1):
                if near[0].files.module.stat().st_size > _SMALL_BYTES:
                    # A process gets the same addresses again, so a new one is started, which takes a second.
                    self._builder.pool.close()
                for build, run in self._survived(time_nets, near).items():
                    runs[build].append(run)
        return {build: NetRun.joined(partial_runs) for build, partial_runs in runs.items()}

    def _survived(self, function: Callable[..., list[NetRun]], builds: Sequence[Build]) -> dict[str, NetRun]:
        """Runs by digest. If a worker or its GPU does not survive all builds, each runs alone, in a process that no
        other one has harmed, so that one does not lose others.

        Raises:
            DisturbedError: if the worker was disturbed.
        """
        try:
            return self._run(function, "profiling plans", builds)
        except DisturbedError:
            raise
        except CompileError as error:
            if len(builds) == 1:
                return {builds[0].digest: NetRun.failed(error)}
        return {digest: run for build in builds for digest, run in self._survived(function, [build]).items()}

    def _near(self, builds: Sequence[Build], runs: Mapping[str, NetRun]) -> list[Build]:
        """The builds that may be the best."""
        right = [build for build in builds if self._may_be_right(build, runs[build.digest])]
        best = min((runs[build.digest].seconds for build in right), default=0.0)
        return [build for build in right if runs[build.digest].seconds <= _NEAR * best]

    def _may_be_right(self, build: Build, run: NetRun) -> bool:
        """Whether a run may be right, by its error on one sample."""
        return (run if self.verifies else provisional(run, self._budget, build.recipe)).status is Status.OK

    def first(self, builds: Sequence[Build]) -> dict[str, FirstSamples]:
        """Time the loading of each build from its file with its first inference; returns samples by digest.

        Raises:
            CompileError: if the worker dies.
        """
        return dict(self._run(time_first, "timing first inferences", builds))

    def with_threads(self, build: Build, counts: Sequence[int]) -> dict[int, tuple[float, ...]]:
        """Time a build with several numbers of threads in turn; returns samples of seconds by the number.

        Raises:
            CompileError: if the worker dies.
            DeviceError: if the build does not run.
        """
        return dict(zip(counts, self.beside([(build, count) for count in counts]), strict=True))

    def beside(self, pairs: Sequence[tuple[Build, int]]) -> list[tuple[float, ...]]:
        """Time builds of the model in turn, each with its number of threads; returns samples of seconds of each.

        Raises:
            CompileError: if the worker dies.
            DeviceError: if one does not run.
        """
        arguments = {"trial": self._trial([build for build, _ in pairs]), "counts": [count for _, count in pairs]}
        return call(self._builder.pool, time_with_threads, arguments, "timing numbers of threads", quiet=True)

    @property
    def passes(self) -> int:
        """Number of processes in which networks to compare are timed."""
        return 1 if self._is_slow or self._is_hurried else _PASSES

    def dispatches(self, builds: Sequence[tuple[Build, float]], passes: int) -> dict[str, list[tuple[Dispatch, ...]]]:
        """Time each dispatch of some builds, in runs of the whole networks, in so many passes over all builds.

        On a GPU beginnings of the networks are timed, and a layer or conversion counts as a dispatch. Of a build beside
        no other, what was timed before counts among the passes.

        Args:
            builds: the builds, with the seconds of one inference, which determine the number of inferences.

        Returns:
            The passes of the builds that run, by digest of the build.

        Raises:
            DeviceError: if no build runs, or the device reports no dispatches.
        """
        earlier = self._alone if len(builds) == 1 else {}
        runs_of_all = {build.digest: [*earlier.get(build.digest, ())] for build, _ in builds}
        for number in range(passes):
            self._builder.progress("timing layers in place", number, passes)
            for build, seconds in builds:
                if build.digest in runs_of_all and len(runs_of_all[build.digest]) <= number:
                    try:
                        runs_of_all[build.digest].append(self._dispatches(build, seconds))
                    except DeviceError as error:
                        _LOG.warning("the layers of a plan were not timed in place: %s", error)
                        del runs_of_all[build.digest]
        self._builder.progress("timing layers in place", passes, passes)
        if not runs_of_all:
            raise DeviceError("no plan reports how long its dispatches take")
        if len(builds) == 1:
            self._alone = runs_of_all
        return runs_of_all

    def _dispatches(self, build: Build, seconds: float) -> tuple[Dispatch, ...]:
        files, target = build.files, self._target
        if not target.is_cpu:
            return self._prefixes.pieces(build.recipe)
        names = [input_.name for input_ in self._imported.graph.inputs]
        arguments = {
            "path": files.module,
            "entry": ENTRY,
            "inputs": [self._imported.samples[name] for name in names],
            "device": target.device,
            "threads": target.threads,
            "parameters": {} if files.weights is None else {PARAMETER_SCOPE: files.weights},
            "iterations": min(max(int(_STATISTICS_SECONDS / (self.passes * seconds)), _LEAST_RUNS), _MOST_RUNS),
        }
        return dispatches_in_worker(self._builder.pool, arguments).dispatches

    def _run(self, function: Callable[..., list[_Run]], step: str, builds: Sequence[Build]) -> dict[str, _Run]:
        self._builder.progress(step, 0, len(builds))
        runs = call(self._builder.pool, function, {"trial": self._trial(builds)}, step, quiet=True)
        return {built.digest: run for built, run in zip(builds, runs, strict=True)}

    def _trial(self, builds: Sequence[Build]) -> NetTrial:
        values = (self._imported.graph.inputs, self._imported.graph.outputs)
        return NetTrial([build.files for build in builds], values, self._example.value, self._settings(len(builds)))

    @property
    def _is_slow(self) -> bool:
        """Whether an inference is expected to take seconds."""
        return self._target.is_software

    def _settings(self, networks: int) -> MeasureSettings:
        """How so many networks are timed in turn."""
        usual = _ROUNDS if networks > 1 else _ROUNDS_ALONE
        hurried = _HURRIED_ROUNDS if networks > 1 else _HURRIED_ROUNDS_ALONE
        return MeasureSettings(
            device=self._target.device,
            threads=self._target.threads,
            # A network that another compilation may accept is timed; one whose error exceeds all bounds is not.
            max_error=math.inf if self.verifies else self._budget.timed,
            rounds=2 if self._is_slow else hurried if self._is_hurried else usual,
            seconds=30.0 if self._is_slow else 4.0,
            block=0 if self._is_slow else _BLOCK,
        )
