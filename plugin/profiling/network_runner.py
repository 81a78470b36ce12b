"""Whole networks run in a worker, and compared with ONNX Runtime on the user's own file."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sartor.codegen.ir.graph import ENTRY
from sartor.codegen.linking.stitching import PARAMETER_SCOPE
from sartor.config import Precision
from sartor.errors import CompileError, DeviceError, DisturbedError
from sartor.profiling.builder import Build, Builder
from sartor.profiling.dispatch_job import dispatches_in_worker
from sartor.profiling.error_bound import ErrorBound
from sartor.profiling.verify_job import Check, Verified, verify
from sartor.reference.reference_job import run_reference
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.samples.sample_sets import MOST_VERIFIED, SampleSet
from sartor.tuning.errors.error_budget import MOST_ROUNDED
from sartor.tuning.errors.error_measures import MeasureKind
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.networks.profile_job import Example, NetRun, NetTrial, profile_nets, time_first, time_nets
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.calls import call, call_until_done

_LOG = logging.getLogger(__name__)
_Run = TypeVar("_Run")
_VERIFY_SECONDS = 10.0
# With the profiler on a run takes three times as long, and there are two passes.
_STATISTICS_SECONDS = 0.3
_LEAST_RUNS, _MOST_RUNS = 3, 50
# Placed in memory anew the same network takes up to a tenth more or less.
_PASSES, _ROUNDS, _BLOCK = 3, 6, 4
# What is further off in one process is no better in others.
_NEAR = 1.15
# Networks that the second-level cache holds take as long wherever they lie.
_SMALL_BYTES = 1 << 20
# A pass that takes longer is not repeated.
_LONG_SECONDS = 60.0


class NetRunner:
    """Runs builds of one model on its sample inputs.

    Each build is run on the first sample before its time counts. If there are no others, and the measure is the
    relative error, that says whether it is right; else ``verify`` does.

    Args:
        builder: made the builds.
        samples: what to run them on.
        bound: what counts as right.
    """

    def __init__(self, builder: Builder, samples: SampleSet, bound: ErrorBound) -> None:
        self._builder = builder
        self._imported = builder.imported
        self._config = builder.config
        self._samples = samples
        self._bound = bound
        self._measure = bound.measure
        self._is_relative = self._measure.kind is MeasureKind.RELATIVE
        # How coarse slices of outputs are looked at.
        self._narrow = builder.config.precision is not Precision.F32
        self._told = False

    @property
    def bound(self) -> ErrorBound:
        """What counts as right."""
        return self._bound

    @property
    def criterion(self) -> str:
        """What errors are measured by, and on what: a stored error means something with the same only."""
        return f"{self._measure.identity} {self._narrow} {self._samples.digest}"

    @property
    def verifies(self) -> bool:
        """Whether a build has to be verified after it was run."""
        return len(self._samples) > 1 or not self._is_relative

    @property
    def verified_count(self) -> int:
        """On how many samples errors are measured."""
        return min(len(self._samples), MOST_VERIFIED)

    def verify(self, build: Build) -> NetRun:
        """The error on all samples, or on the first ``MOST_VERIFIED``, not yet judged; times are those of single
        inferences.

        Raises:
            UsageError: if the samples cannot be read, or the user's measure fails on them.
            DisturbedError: if the worker was disturbed, so that nothing is known.
        """
        try:
            return self._verified(build)
        except DisturbedError:
            raise
        except (CompileError, DeviceError) as error:
            return NetRun(Status.CRASHED, message=str(error))

    def _verified(self, build: Build) -> NetRun:
        """The run of a module on all samples.

        Raises:
            DeviceError: if the module does not run.
            UsageError: as ``verify``.
            CompileError: if the worker dies.
        """
        count, step = self.verified_count, "verifying the module"
        models = (self._imported.path.resolve(), self._imported.prepared)
        values = (self._imported.graph.inputs, self._imported.graph.outputs)
        device, threads = self._config.target.device, self._config.threads
        source = self._samples.source
        check = Check(build.files, values, models, source, count, self._measure, self._narrow, device, threads)
        pool, progress = self._builder.pool, self._builder.progress
        found = call_until_done(
            pool, verify, {"check": check}, Verified(), count, step, progress=progress, seconds=_VERIFY_SECONDS
        )
        self._tell(found.refused)
        return NetRun(Status.OK, found.seconds, self._measure.of_samples(found.errors))

    def begin(self) -> None:
        """Find what is right, while no worker is busy or measures."""
        _ = self._example

    def profile(self, builds: Sequence[Build]) -> dict[str, NetRun]:
        """Check the builds and time them in turn; runs by digest of the build.

        Where there is a choice they are loaded anew several times, as what they take depends on where their memory
        lies.

        Raises:
            CompileError: if the worker dies.
        """
        started = time.monotonic()
        runs = {build: [run] for build, run in self._run(profile_nets, "profiling plans", builds).items()}
        near = self._near(builds, {build: run for build, (run,) in runs.items()})
        if len(near) > 1 and time.monotonic() - started < _LONG_SECONDS:
            for _ in range(self.passes - 1):
                if near[0].files.module.stat().st_size > _SMALL_BYTES:
                    # What a process has freed it is given again. Starting one takes a second.
                    self._builder.pool.close()
                for build, run in self._run(time_nets, "profiling plans", near).items():
                    runs[build].append(run)
        return {build: NetRun.joined(found) for build, found in runs.items()}

    def _near(self, builds: Sequence[Build], runs: Mapping[str, NetRun]) -> list[Build]:
        """Those that may be the best."""
        right = [each for each in builds if self._may_be_right(runs[each.digest])]
        best = min((runs[each.digest].seconds for each in right), default=0.0)
        return [each for each in right if runs[each.digest].seconds <= _NEAR * best]

    def _may_be_right(self, run: NetRun) -> bool:
        """Whether a run is right, as far as one sample tells."""
        return (run if self.verifies else self._bound.judged(run)).status is Status.OK

    def first(self, builds: Sequence[Build]) -> dict[str, tuple[float, ...]]:
        """Seconds of loading each build from its file and of its first inference; samples by digest of the build.

        Raises:
            CompileError: if the worker dies.
        """
        return dict(self._run(time_first, "timing first inferences", builds))

    @property
    def passes(self) -> int:
        """In how many processes what is compared is timed."""
        return 1 if self._is_slow or self._config.time_budget is not None else _PASSES

    def dispatches(self, builds: Sequence[tuple[Build, float]]) -> dict[str, list[tuple[Dispatch, ...]]]:
        """How long each dispatch of some builds takes, in runs of the whole networks; one pass of all after the other.

        Args:
            builds: what to run, and the seconds of one inference, by which follows how many there are.

        Returns:
            The passes of those that run, by digest of the build.

        Raises:
            DeviceError: if none runs, or the device reports no dispatches.
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
        names = [each.name for each in self._imported.graph.inputs]
        files, device = build.files, self._config.target.device
        arguments = {
            "path": files.module,
            "entry": ENTRY,
            "inputs": [self._imported.samples[name] for name in names],
            "device": device,
            "threads": self._config.threads if device == "cpu" else None,
            "parameters": {} if files.weights is None else {PARAMETER_SCOPE: files.weights},
            "iterations": min(max(int(_STATISTICS_SECONDS / (self.passes * seconds)), _LEAST_RUNS), _MOST_RUNS),
        }
        return dispatches_in_worker(self._builder.pool, arguments).dispatches

    def _run(self, function: Callable[..., list[_Run]], step: str, builds: Sequence[Build]) -> dict[str, _Run]:
        self._builder.progress(step, 0, len(builds))
        values = (self._imported.graph.inputs, self._imported.graph.outputs)
        trial = NetTrial([each.files for each in builds], values, self._example, self._settings())
        runs = call(self._builder.pool, function, {"trial": trial}, step, quiet=True)
        return {built.digest: run for built, run in zip(builds, runs, strict=True)}

    @functools.cached_property
    def _example(self) -> Example:
        """What ONNX Runtime makes of the user's own file, before anything was rewritten; made once for all builds."""
        feeds, models = self._samples.first, (self._imported.path, self._imported.prepared)
        self._builder.progress("running ONNX Runtime", 0, 1)
        found = run_reference(self._builder.pool, models, models[-1], feeds, self._config.threads, narrow=self._narrow)
        self._tell(found.refused)
        return Example(feeds, found.arrays, found.scales)

    def _tell(self, refused: Sequence[str]) -> None:
        """Say once why it is not the user's file that modules are compared with."""
        for reason in refused if not self._told else ():
            _LOG.warning("%s: %s; checked against the prepared model instead", self._imported.path.name, reason)
        self._told = self._told or bool(refused)

    @property
    def _is_slow(self) -> bool:
        """Whether an inference is expected to take seconds."""
        return self._config.target.device == "vulkan"

    def _settings(self) -> MeasureSettings:
        return MeasureSettings(
            device=self._config.target.device,
            threads=self._config.threads,
            # A network that another compilation may take is timed; one that is beyond all bounds is not.
            max_error=math.inf if self.verifies else max(self._bound.allowed, MOST_ROUNDED),
            rounds=2 if self._is_slow else _ROUNDS,
            seconds=30.0 if self._is_slow else 4.0,
            block=0 if self._is_slow else _BLOCK,
        )
