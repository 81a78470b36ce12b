"""Runs whole networks in a worker, and compares them with ONNX Runtime on the user's file."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.linking.names import PARAMETER_SCOPE
from sartor.errors import (
    CompileError,
    DeviceError,
    DisturbedError,
    ReferenceFailedError,
    UnsupportedModelError,
    UsageError,
)
from sartor.profiling.builder import Build, Builder
from sartor.profiling.layers.dispatch_job import dispatches_in_worker
from sartor.profiling.layers.prefix_timing import PrefixTimer
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.profiling.state_check import verify_states
from sartor.profiling.verdicts import compares_layers, judged, judged_by_layers, provisional
from sartor.profiling.verify_job import Check, Computed, Verified, compute_references, verify, verify_elsewhere
from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.samples.sample_sets import MOST_VERIFIED, SampleSet
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import MeasureKind
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.networks.profile_job import (
    Example,
    FirstSamples,
    NetRun,
    NetTrial,
    profile_nets,
    time_first,
    time_nets,
    time_with_threads,
)
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.calls import call, call_until_done
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)
_Run = TypeVar("_Run")
_VERIFY_SECONDS = 10.0
# On which layers are compared: those with the largest errors.
_LAYER_SAMPLES = 2
# With IREE's profiler a run takes three times as long, and there are two passes.
_STATISTICS_SECONDS = 0.3
_LEAST_RUNS, _MOST_RUNS = 3, 50
# Loaded again, at other addresses, the same network's time differs by up to a tenth.
_PASSES, _ROUNDS, _BLOCK = 3, 6, 4
# Within a time budget.
_HURRIED_ROUNDS = 3
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
    """

    def __init__(self, builder: Builder, samples: SampleSet, budget: ErrorBudget, *, is_hurried: bool = False) -> None:
        self._builder = builder
        self._imported = builder.imported
        self._target = builder.header.target
        self._samples = samples
        self._budget = budget
        self._measure = budget.measure
        self._is_hurried = is_hurried
        self._is_relative = self._measure.kind is MeasureKind.RELATIVE
        self._prefixes = PrefixTimer(builder)
        # How coarse the scales of slices of outputs are.
        self._narrow = budget.narrow
        self._told = False
        self._described, self._unvouched = "", tuple[str, ...]()
        self._ahead: Ahead[ReferenceOutputs | WorkerError] | None = None

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
        return f"{self._measure.identity} {self._narrow} {self._samples.digest}"

    @property
    def reference(self) -> str:
        """Who computed what modules were compared with, as messages say it; empty before it ran."""
        return self._described

    @property
    def unvouched(self) -> tuple[str, ...]:
        """Why nobody but the rewritten model vouches for modules, one sentence each; empty if that is not so."""
        return self._unvouched

    @property
    def verifies(self) -> bool:
        """Whether builds must be verified after they were run."""
        return len(self._samples) > 1 or not self._is_relative

    @property
    def verified_count(self) -> int:
        """Number of samples on which errors are measured."""
        return min(len(self._samples), MOST_VERIFIED)

    def verify(self, build: Build) -> NetRun:
        """Measure the error on all samples, or on the first ``MOST_VERIFIED``; returns the run, which is not judged yet
        and whose times are those of single inferences.

        Raises:
            UsageError: if the samples cannot be read, or the user's measure fails on them.
            DisturbedError: if the worker was disturbed.
            ReferenceFailedError: if ONNX Runtime crashes.
        """
        return self._measured(build)[0]

    def _measured(self, build: Build) -> tuple[NetRun, tuple[float, ...]]:
        """As ``verify``, with the error on each sample; without any if the run failed."""
        try:
            verified = self._verified(build)
        except DisturbedError:
            raise
        except (CompileError, DeviceError) as error:
            # Both ran in one process: alone, ONNX Runtime shows whether the module is to blame.
            self._check_reference(build)
            return NetRun.failed(error), ()
        run = NetRun(Status.OK, verified.seconds, self._measure.of_samples(verified.errors), verified.where)
        return run, verified.errors

    def judged(self, build: Build) -> NetRun:
        """``verify`` and judge the run: by its layers where rounding may amplify or hide errors, else by its error; if
        it keeps states, by several calls as well.

        Raises:
            UsageError, DisturbedError, ReferenceFailedError: as ``verify``.
            RewriteError: if the rewritten model is wrong.
        """
        run = self._judged(build)
        if run.status is not Status.OK or not self._imported.states:
            return run
        step = "verifying calls that keep states"
        try:
            job = {"check": self._check_of(build), "states": self._imported.states}
            found = call(self._builder.pool, verify_states, job, step)
        except DisturbedError:
            raise
        except (CompileError, DeviceError) as error:
            self._check_reference(build)
            return NetRun.failed(error)
        is_beyond = run.error is not None and run.error > self._budget.accepted
        if is_beyond and run.layers and found.is_near(run):
            return found.run(run)
        found_run = judged(found.run(run), self._budget)
        is_right = found_run.status is Status.OK
        return found_run if is_right else replace(found_run, message=f"{found_run.message}; {found.sentence}")

    def _judged(self, build: Build) -> NetRun:
        run, errors = self._measured(build)
        if not compares_layers(run, self._budget, build.recipe):
            return judged(run, self._budget)
        # What is wrong on some samples only shows where the error is largest.
        worst = sorted(range(len(errors)), key=errors.__getitem__)[-_LAYER_SAMPLES:]
        few = [sample for index in worst for sample in islice(self._samples.source.since(index), 1)]
        return judged_by_layers(run, self._judge.verdict(build.recipe, build.files, few), self._budget)

    def rewritten_verdict(self, instead: str) -> LayerVerdict:
        """What the layers of the rewritten model say, which is compared ``instead`` of a module, on the first samples.

        Raises:
            RewriteError: if it is wrong.
        """
        few = list(islice(self._samples.source.since(0), _LAYER_SAMPLES))
        return self._judge.rewritten(self._imported.graph, few, instead)

    @functools.cached_property
    def _judge(self) -> LayerJudge:
        builder, target = self._builder, self._target
        return LayerJudge(
            self._imported,
            builder.pool,
            builder.directory,
            builder.header,
            target.device,
            target.threads,
            builder.progress,
        )

    def _verified(self, build: Build) -> Verified:
        """Run a module on all samples, beside the reference.

        Raises:
            DeviceError: if the module does not run.
            UsageError: as ``verify``.
            CompileError: if the worker dies.
        """
        count, step = self.verified_count, "verifying the module"
        check = self._check_of(build)
        pool, progress = self._builder.pool, self._builder.progress
        if pool.measures_elsewhere:
            found = verify_elsewhere(pool, check, step, progress)
        else:
            found = call_until_done(
                pool, verify, {"check": check}, Verified(), count, step, progress=progress, seconds=_VERIFY_SECONDS
            )
        self._tell(found.refused, found.described)
        return found

    def _check_of(self, build: Build) -> Check:
        """What a module is compared with, and how."""
        models = (self._imported.path.absolute(), self._imported.prepared)
        values = (self._imported.graph.inputs, self._imported.graph.outputs)
        device, threads = self._target.device, self._target.threads
        source, count = self._samples.source, self.verified_count
        known = self._example if self._knows_example else None
        return Check(
            files=build.files,
            values=values,
            models=models,
            samples=source,
            count=count,
            measure=self._measure,
            narrow=self._narrow,
            device=device,
            threads=threads,
            bound=self._imported.bound,
            first=known,
        )

    def _check_reference(self, build: Build) -> None:
        """Run ONNX Runtime alone, on all samples, which a module was compared with.

        Raises:
            ReferenceFailedError: if it crashes or hangs.
        """
        step = "running ONNX Runtime"
        self.begin()
        job = {"check": self._check_of(build)}
        try:
            call_until_done(
                self._builder.pool,
                compute_references,
                job,
                Computed(),
                self.verified_count,
                step,
                progress=self._builder.progress,
                seconds=_VERIFY_SECONDS,
            )
        except DisturbedError:
            raise
        except CompileError as error:
            raise self._reference_failed(error) from None

    def begin_ahead(self) -> None:
        """Begin to compute the reference outputs beside what the pool does: every compilation needs them."""
        self._ahead = self._reference.begin(self._builder.pool)

    @property
    def _reference(self) -> ReferenceRun:
        """ONNX Runtime on the first sample: on the user's file, or if it does not load that, on the prepared model."""
        models, bound = (self._imported.path, self._imported.prepared), self._imported.bound
        return ReferenceRun(models, models[-1], self._samples.first, self._target.threads, self._narrow, bound)

    @property
    def _knows_example(self) -> bool:
        """Whether the reference outputs of the first sample are known, or are being computed."""
        return self._ahead is not None or "_example" in vars(self)

    def begin(self) -> None:
        """Compute the reference outputs, while no worker is busy.

        Raises:
            ReferenceFailedError: if ONNX Runtime crashes or hangs.
        """
        _ = self._example

    def profile(self, builds: Sequence[Build]) -> dict[str, NetRun]:
        """Check the builds and time them in turn; returns runs by digest of the build.

        If there are several, they are loaded again in several processes, as their times depend on their addresses.

        Raises:
            DisturbedError: if the worker was disturbed.
            ReferenceFailedError: if ONNX Runtime crashes.
        """
        self.begin()
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
        return {build: NetRun.joined(found) for build, found in runs.items()}

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
        right = [each for each in builds if self._may_be_right(each, runs[each.digest])]
        best = min((runs[each.digest].seconds for each in right), default=0.0)
        return [each for each in right if runs[each.digest].seconds <= _NEAR * best]

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
        arguments = {"trial": self._trial([build]), "counts": counts}
        return call(self._builder.pool, time_with_threads, arguments, "timing numbers of threads", quiet=True)

    @property
    def passes(self) -> int:
        """Number of processes in which networks to compare are timed."""
        return 1 if self._is_slow or self._is_hurried else _PASSES

    def dispatches(self, builds: Sequence[tuple[Build, float]]) -> dict[str, list[tuple[Dispatch, ...]]]:
        """Time each dispatch of some builds, in runs of the whole networks, in passes over all builds.

        On a GPU beginnings of the networks are timed, and a layer or conversion counts as a dispatch.

        Args:
            builds: the builds, with the seconds of one inference, which determine the number of inferences.

        Returns:
            The passes of the builds that run, by digest of the build.

        Raises:
            DeviceError: if no build runs, or the device reports no dispatches.
        """
        found: dict[str, list[tuple[Dispatch, ...]]] = {build.digest: [] for build, _ in builds}
        for number in range(self.passes):
            self._builder.progress("timing layers in place", number, self.passes)
            for build, seconds in builds:
                if build.digest in found:
                    try:
                        found[build.digest].append(self._dispatches(build, seconds))
                    except DeviceError as error:
                        _LOG.warning("the layers of a plan were not timed in place: %s", error)
                        del found[build.digest]
        self._builder.progress("timing layers in place", self.passes, self.passes)
        if not found:
            raise DeviceError("no plan reports how long its dispatches take")
        return found

    def _dispatches(self, build: Build, seconds: float) -> tuple[Dispatch, ...]:
        files, device = build.files, self._target.device
        if device != "cpu":
            return self._prefixes.pieces(build.recipe)
        names = [each.name for each in self._imported.graph.inputs]
        arguments = {
            "path": files.module,
            "entry": ENTRY,
            "inputs": [self._imported.samples[name] for name in names],
            "device": device,
            "threads": self._target.threads if device == "cpu" else None,
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
        return NetTrial([each.files for each in builds], values, self._example, self._settings())

    @functools.cached_property
    def _example(self) -> Example:
        """The sample with ONNX Runtime's outputs on the user's original file, computed once for all builds."""
        begun = None if self._ahead is None else self._ahead.value()
        # What failed is computed again, where its error is told.
        found = begun if isinstance(begun, ReferenceOutputs) else self._reference_outputs()
        self._tell(found.refused, found.described)
        return Example(self._samples.first, found.arrays, found.scales)

    def _reference_outputs(self) -> ReferenceOutputs:
        self._builder.progress("running ONNX Runtime", 0, 1)
        try:
            return self._reference.outputs(self._builder.pool)
        except UsageError as error:
            if self._samples.are_given:
                raise
            raise UnsupportedModelError(
                f"{error}; give inputs that the model takes with --calibration, or export it again"
            ) from None
        except DisturbedError:
            raise
        except CompileError as error:
            raise self._reference_failed(error) from None

    def _reference_failed(self, error: CompileError) -> ReferenceFailedError:
        name = self._imported.path.name
        return ReferenceFailedError(
            f"ONNX Runtime, whose results every module is compared with, fails on '{name}': {error}"
        )

    def _tell(self, refused: Sequence[str], described: str) -> None:
        """Warn, once, of the reason why modules are not compared with the user's file."""
        self._described = described or self._described
        for reason in refused if not self._told else ():
            _LOG.warning(
                "%s: %s; it is NOT checked against an independent reference, but with the rewritten model alone, whose "
                "errors no check finds",
                self._imported.path.name,
                reason,
            )
            self._unvouched = (*self._unvouched, reason)
        self._told = self._told or bool(refused)

    @property
    def _is_slow(self) -> bool:
        """Whether an inference is expected to take seconds."""
        return self._target.is_software

    def _settings(self) -> MeasureSettings:
        return MeasureSettings(
            device=self._target.device,
            threads=self._target.threads,
            # A network that another compilation may accept is timed; one whose error exceeds all bounds is not.
            max_error=math.inf if self.verifies else self._budget.timed,
            rounds=2 if self._is_slow else _HURRIED_ROUNDS if self._is_hurried else _ROUNDS,
            seconds=30.0 if self._is_slow else 4.0,
            block=0 if self._is_slow else _BLOCK,
        )
