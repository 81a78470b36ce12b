"""Whole networks run in a worker, and compared with ONNX Runtime on the user's own file."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from onnx import ModelProto

from sartor.building import Build, Builder
from sartor.codegen.stitch import ENTRY, PARAMETER_SCOPE
from sartor.errors import CompileError, UnsupportedModelError
from sartor.runtime.dispatch_statistics import Dispatch, dispatch_statistics
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.sample_sets import SampleSet
from sartor.sigmoid_outputs import output_floors
from sartor.tolerance import tolerance
from sartor.tuning.error_measures import MeasureKind
from sartor.tuning.measure_job import MeasureSettings
from sartor.tuning.measurement import Status
from sartor.tuning.net_profile_job import Example, NetRun
from sartor.tuning.workers import JobStatus
from sartor.verify_job import Check, Verified
from sartor.worker_calls import call

ALLOW_MORE = "--max-error allows more, if that is acceptable"
_LOG = logging.getLogger(__name__)
_JOBS = "sartor.tuning.net_profile_job"
_VERIFY = "sartor.verify_job:verify"
_TIMEOUT = 900.0
MOST_VERIFIED = 100
"""A module's error is measured on the first so many samples."""

_VERIFY_SECONDS = 10.0
# With the profiler on a run takes three times as long, and there are two passes.
_STATISTICS_SECONDS = 0.3
_LEAST_RUNS, _MOST_RUNS = 3, 50
# Placed in memory anew the same network takes up to a tenth more or less.
_PASSES, _ROUNDS, _BLOCK = 3, 6, 4


class NetRunner:
    """Runs builds of one model on its sample inputs.

    Each build is run on the first sample before its time counts. If there are no others, and the measure is the
    relative error, that says whether it is right; else ``verify`` does.

    Args:
        builder: made the builds.
        samples: what to run them on.
    """

    def __init__(self, builder: Builder, samples: SampleSet) -> None:
        self._builder = builder
        self._front = builder.front
        self._config = builder.config
        self._samples = samples
        self._measure = builder.config.error_measure
        self._is_relative = self._measure.kind is MeasureKind.RELATIVE
        model = ModelProto.FromString(builder.front.skeleton)
        # What the model's own types round off is known as a relative error only.
        allowed = builder.config.allowed_error
        if self._is_relative:
            allowed = tolerance(model, allowed, is_quantised=builder.front.is_quantised)
        self._allowed = allowed
        self._floors = output_floors(model)

    @property
    def criterion(self) -> str:
        """What counts as right; a stored result means something under the same one only."""
        plain = f"{self._allowed} {self._floors}"
        return f"{plain} {self._measure.identity} {self._samples.digest}" if self.verifies else plain

    @property
    def verifies(self) -> bool:
        """Whether a build has to be verified after it was run."""
        return len(self._samples) > 1 or not self._is_relative

    @property
    def verified_count(self) -> int:
        """On how many samples errors are measured."""
        return min(len(self._samples), MOST_VERIFIED)

    def verify(self, build: Build) -> NetRun:
        """The error on all samples, or on the first ``MOST_VERIFIED``; times are those of single inferences.

        Raises:
            UsageError: if the samples cannot be read, or the user's measure fails on them.
            CompileError: if the worker dies.
        """
        count, step = self.verified_count, "verifying the module"
        models = (self._front.path.resolve(), self._front.prepared)
        values = (self._front.graph.inputs, self._front.graph.outputs)
        device, threads = self._config.target.device, self._config.threads
        source = self._samples.source
        check = Check(build.files, values, models, source, count, self._measure, self._floors, device, threads)
        found = Verified()
        while (done := len(found.errors)) < count:
            self._builder.progress(step, done, count)
            job = {"check": check, "start": done, "seconds": _VERIFY_SECONDS}
            found += call(self._builder.pool, _VERIFY, job, step, _TIMEOUT)
        self._builder.progress(step, count, count)
        error = self._measure.of_samples(found.errors)
        if error <= self._allowed:
            return NetRun(Status.OK, found.seconds, error)
        said = f"{self._measure} error {error:.2g} against ONNX Runtime on {count} samples"
        return NetRun(Status.WRONG_RESULT, error=error, message=f"{said}, allowed is {self._allowed:.2g}")

    def begin(self) -> None:
        """Let ONNX Runtime load the model: best while the first builds are compiled."""
        _ = self._example

    def profile(self, builds: Sequence[Build]) -> dict[int, NetRun]:
        """Check the builds and time them in turn; runs by identity of the build.

        Where there is a choice they are loaded anew several times, as what they take depends on where their memory
        lies.

        Raises:
            CompileError: if the worker dies.
        """
        has_choice = sum(not each.recipe.plan.unsplit for each in builds) > 1 and not self._is_slow
        passes = [self._run("profile_nets", "profiling plans", builds) for _ in range(_PASSES if has_choice else 1)]
        return {each: NetRun.joined([runs[each] for runs in passes]) for each in passes[0]}

    def first(self, builds: Sequence[Build]) -> dict[int, tuple[float, ...]]:
        """Seconds of loading each build from its file and of its first inference; samples by identity of the build.

        Raises:
            CompileError: if the worker dies.
        """
        return dict(self._run("time_first", "timing first inferences", builds))

    def check(self, build: Build) -> float | None:
        """The error against ONNX Runtime.

        Raises:
            CompileError: if it is larger than allowed, or the module does not run.
            UsageError: as ``verify``.
        """
        run: NetRun = self._run("check_nets", "checking the module", [build])[id(build)]
        if run.status is Status.OK and self.verifies:
            run = self.verify(build)
        if run.status is not Status.OK:
            raise CompileError(f"the module is not right: {run.message}; {ALLOW_MORE}")
        return run.error

    def dispatches(self, builds: Sequence[tuple[Build, float]], passes: int) -> list[list[tuple[Dispatch, ...]]]:
        """How long each dispatch of some builds takes, in runs of the whole networks; one pass of all after the other.

        Args:
            builds: what to run, and the seconds of one inference, by which follows how many there are.
            passes: processes that each of them is loaded in.

        Returns:
            Each build's passes.

        Raises:
            DeviceError: if a build does not run, or the device reports no dispatches.
        """
        found: list[list[tuple[Dispatch, ...]]] = [[] for _ in builds]
        for number in range(passes):
            self._builder.progress("timing layers in place", number, passes)
            for (build, seconds), each in zip(builds, found, strict=True):
                each.append(self._dispatches(build, seconds, passes))
        self._builder.progress("timing layers in place", passes, passes)
        return found

    def _dispatches(self, build: Build, seconds: float, passes: int) -> tuple[Dispatch, ...]:
        names = [each.name for each in self._front.graph.inputs]
        files, device = build.files, self._config.target.device
        return dispatch_statistics(
            files.module,
            ENTRY,
            [self._front.samples[name] for name in names],
            device=device,
            threads=self._config.threads if device == "cpu" else None,
            parameters={} if files.weights is None else {PARAMETER_SCOPE: files.weights},
            iterations=min(max(int(_STATISTICS_SECONDS / (passes * seconds)), _LEAST_RUNS), _MOST_RUNS),
        ).dispatches

    def _run(self, function: str, step: str, builds: Sequence[Build]) -> dict[int, Any]:
        self._builder.progress(step, 0, len(builds))
        job = {
            "nets": [each.files for each in builds],
            "values": (self._front.graph.inputs, self._front.graph.outputs),
            "example": self._example.result(),
            "settings": self._settings(),
        }
        jobs = [("nets", job)]
        (result,) = self._builder.pool.map_unordered(f"{_JOBS}:{function}", jobs, _TIMEOUT, quiet=True)
        if result.status is not JobStatus.OK:
            raise CompileError(f"{step} ended as {result.status.value}: {result.message}")
        return {id(built): run for built, run in zip(builds, result.value, strict=True)}

    @functools.cached_property
    def _example(self) -> Future[Example]:
        """Made by a thread once, however many builds are compared with it."""
        executor = ThreadPoolExecutor(1)
        found = executor.submit(self._reference)
        executor.shutdown(wait=False)
        return found

    def _reference(self) -> Example:
        """What ONNX Runtime makes of the user's own file, before anything was rewritten."""
        feeds = self._samples.first
        try:
            runtime = OnnxRuntimeReference(self._front.path, threads=self._config.threads)
        except UnsupportedModelError as error:
            _LOG.warning("%s: %s; checked against the prepared model instead", self._front.path.name, error)
            runtime = OnnxRuntimeReference(self._front.prepared, threads=self._config.threads)
        return Example(feeds, runtime(feeds), self._floors)

    @property
    def _is_slow(self) -> bool:
        """Whether an inference is expected to take seconds."""
        return self._config.target.device == "vulkan"

    def _settings(self) -> MeasureSettings:
        return MeasureSettings(
            device=self._config.target.device,
            threads=self._config.threads,
            max_error=math.inf if self.verifies else self._allowed,
            rounds=2 if self._is_slow else _ROUNDS,
            seconds=30.0 if self._is_slow else 4.0,
            block=0 if self._is_slow else _BLOCK,
        )
