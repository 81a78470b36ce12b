"""Whole networks run in a worker, and compared with ONNX Runtime on the user's own file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from onnx import ModelProto

from sartor.building import Build, Builder
from sartor.codegen.stitch import ENTRY, PARAMETER_SCOPE
from sartor.errors import CompileError, UnsupportedModelError
from sartor.front_job import Front
from sartor.runtime.dispatch_statistics import Dispatch, dispatch_statistics
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.sigmoid_outputs import output_floors
from sartor.tolerance import tolerance
from sartor.tuning.measure_job import MeasureSettings
from sartor.tuning.measurement import Status
from sartor.tuning.whole_net import Example, NetRun
from sartor.tuning.workers import JobStatus

ALLOW_MORE = "--max-error allows more, if that is acceptable"
_LOG = logging.getLogger(__name__)
_JOBS = "sartor.tuning.whole_net"
_TIMEOUT = 900.0
# With the profiler on a run takes three times as long, and there are two passes.
_STATISTICS_SECONDS = 0.3
_LEAST_RUNS, _MOST_RUNS = 5, 50


def _prepared(front: Front) -> ModelProto:
    return ModelProto.FromString(front.prepared if isinstance(front.prepared, bytes) else front.prepared.read_bytes())


class NetRunner:
    """Runs builds of one model on its sample inputs.

    Args:
        builder: made the builds.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._front = builder.front
        self._config = builder.config
        model = _prepared(builder.front)
        self._allowed = tolerance(model, builder.config.max_error)
        self._floors = output_floors(model)

    @property
    def criterion(self) -> str:
        """What counts as right; a stored result means something under the same one only."""
        return f"{self._allowed} {self._floors}"

    def profile(self, builds: Sequence[Build]) -> dict[int, NetRun]:
        """Check the builds and time them in one interleaved run; runs by identity of the build.

        Raises:
            CompileError: if the worker dies.
        """
        return dict(self._run("profile_nets", "profiling plans", builds))

    def first(self, builds: Sequence[Build]) -> dict[int, tuple[float, ...]]:
        """Seconds of loading each build from its file and of its first inference; samples by identity of the build.

        Raises:
            CompileError: if the worker dies.
        """
        return dict(self._run("time_first", "timing first inferences", builds))

    def check(self, build: Build) -> float | None:
        """Relative error of one inference against ONNX Runtime.

        Raises:
            CompileError: if it is larger than allowed, or the module does not run.
        """
        run: NetRun = self._run("check_nets", "checking the module", [build])[id(build)]
        if run.status is not Status.OK:
            raise CompileError(f"the module is not right: {run.message}; {ALLOW_MORE}")
        return run.error

    def dispatches(self, build: Build, seconds: float) -> tuple[Dispatch, ...]:
        """How long each dispatch of a build takes, in runs of the whole network.

        Args:
            build: what to run.
            seconds: that one inference takes, by which follows how many there are.

        Raises:
            DeviceError: if the build does not run, or the device reports no dispatches.
        """
        self._builder.progress("timing layers in place", 0, 1)
        names = [each.name for each in self._front.graph.inputs]
        files, device = build.files, self._config.target.device
        return dispatch_statistics(
            files.module,
            ENTRY,
            [self._front.samples[name] for name in names],
            device=device,
            threads=self._config.threads if device == "cpu" else None,
            parameters={} if files.weights is None else {PARAMETER_SCOPE: files.weights},
            iterations=min(max(int(_STATISTICS_SECONDS / seconds), _LEAST_RUNS), _MOST_RUNS),
        ).dispatches

    def _run(self, function: str, step: str, builds: Sequence[Build]) -> dict[int, Any]:
        self._builder.progress(step, 0, len(builds))
        job = {
            "nets": [each.files for each in builds],
            "values": (self._front.graph.inputs, self._front.graph.outputs),
            "example": self._example(),
            "settings": self._settings(),
        }
        jobs = [("nets", job)]
        (result,) = self._builder.pool.map_unordered(f"{_JOBS}:{function}", jobs, _TIMEOUT, quiet=True)
        if result.status is not JobStatus.OK:
            raise CompileError(f"{step} ended as {result.status.value}: {result.message}")
        return {id(built): run for built, run in zip(builds, result.value, strict=True)}

    def _example(self) -> Example:
        """What ONNX Runtime makes of the user's own file, before anything was rewritten."""
        feeds = self._front.samples
        try:
            runtime = OnnxRuntimeReference(self._front.path, threads=self._config.threads)
        except UnsupportedModelError as error:
            _LOG.warning("%s: %s; checked against the prepared model instead", self._front.path.name, error)
            runtime = OnnxRuntimeReference(self._front.prepared, threads=self._config.threads)
        return Example(feeds, runtime(feeds), self._floors)

    def _settings(self) -> MeasureSettings:
        slow = self._config.target.device == "vulkan"
        return MeasureSettings(
            device=self._config.target.device,
            threads=self._config.threads,
            max_error=self._allowed,
            rounds=2 if slow else 20,
            seconds=30.0 if slow else 4.0,
        )
