"""Judges builds of networks: by their outputs, by their layers where outputs cannot tell, by calls that keep states."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

from onnx import ModelProto

from sartor.errors import CompileError, DeviceError, DisturbedError
from sartor.profiling.builder import Build, Builder
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.reference_example import ReferenceExample
from sartor.profiling.state_check import MOST_SAMPLES, CallErrors, verify_states
from sartor.profiling.verdicts import compares_layers, judged, judged_by_layers
from sartor.profiling.verify_job import Check, Computed, Verified, compute_references, verify, verify_elsewhere
from sartor.reference.tied_codes import coded_outputs
from sartor.samples.sample_sets import MOST_VERIFIED, SampleSet, samples_of_calls
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.calls import call, call_until_done
from sartor.tuning.workers.protocol import WorkerError

_VERIFY_SECONDS = 10.0
# On which layers are compared: those with the largest errors.
_LAYER_SAMPLES = 2


class Verifier:
    """Compares builds of one model with ONNX Runtime on samples.

    Args:
        builder: compiled the builds.
        samples: inputs.
        budget: the error budget.
        example: the first sample with the outputs of ONNX Runtime.
    """

    def __init__(self, builder: Builder, samples: SampleSet, budget: ErrorBudget, example: ReferenceExample) -> None:
        self._builder = builder
        self._imported = builder.imported
        self._target = builder.header.target
        self._samples = samples
        self._budget = budget
        self._measure = budget.measure
        self._example = example

    @property
    def count(self) -> int:
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
        return self.judged_calls(build, run, verify_states, {"states": self._imported.states})

    def _judged(self, build: Build) -> NetRun:
        run, errors = self._measured(build)
        if not compares_layers(run, self._budget, build.recipe):
            return judged(run, self._budget)
        # What is wrong on some samples only shows where the error is largest.
        worst = sorted(range(len(errors)), key=errors.__getitem__)[-_LAYER_SAMPLES:]
        few = [sample for index in worst for sample in islice(self._samples.source.since(index), 1)]
        return judged_by_layers(run, self._judge.verdict(build.recipe, build.files, few), self._budget)

    def judged_calls(
        self, build: Build, run: NetRun, verifying: Callable[..., CallErrors | WorkerError], job: Mapping[str, object]
    ) -> NetRun:
        """Judge a network that keeps something between calls, whose single ``run`` is right, by several calls.

        Args:
            build: its module.
            run: judged by single calls.
            verifying: compares calls in a worker, given a ``check`` and what is in ``job``.
            job: further arguments.

        Raises:
            DisturbedError, ReferenceFailedError: as ``verify``.
        """
        step = "verifying calls that keep states"
        try:
            calls = call(self._builder.pool, verifying, {"check": self._check_of_calls(build), **job}, step)
        except DisturbedError:
            raise
        except (CompileError, DeviceError) as error:
            self._check_reference(build)
            return NetRun.failed(error)
        is_beyond = run.error is not None and run.error > self._budget.accepted
        if is_beyond and run.layers and calls.is_near(run):
            return calls.run(run)
        called = judged(calls.run(run), self._budget)
        is_right = called.status is Status.OK
        return called if is_right else replace(called, message=f"{called.message}; {calls.sentence}")

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
        count, step = self.count, "verifying the module"
        check = self._check_of(build)
        pool, progress = self._builder.pool, self._builder.progress
        if pool.measures_elsewhere:
            verified_parts = verify_elsewhere(pool, check, step, progress)
        else:
            verified_parts = call_until_done(
                pool, verify, {"check": check}, Verified(), count, step, progress=progress, seconds=_VERIFY_SECONDS
            )
        self._example.tell(verified_parts.refused, verified_parts.described)
        return verified_parts

    def _check_of(self, build: Build) -> Check:
        """What a module is compared with, and how."""
        models = (self._imported.path.absolute(), self._imported.prepared)
        values = (self._imported.graph.inputs, self._imported.graph.outputs)
        device, threads = self._target.device, self._target.threads
        source, count = self._samples.source, self.count
        return Check(
            files=build.files,
            values=values,
            models=models,
            samples=source,
            count=count,
            measure=self._measure,
            narrow=self._budget.narrow,
            device=device,
            threads=threads,
            bound=self._imported.bound,
            first=self._example.known,
            coded=self._coded,
        )

    def _check_of_calls(self, build: Build) -> Check:
        """What calls one after another are compared with."""
        source = samples_of_calls(self._imported, self._samples, MOST_SAMPLES)
        return replace(self._check_of(build), samples=source, count=len(source))

    @functools.cached_property
    def _coded(self) -> frozenset[str]:
        return coded_outputs(ModelProto.FromString(self._imported.skeleton))

    def _check_reference(self, build: Build) -> None:
        """Run ONNX Runtime alone, on all samples, which a module was compared with.

        Raises:
            ReferenceFailedError: if it crashes or hangs.
        """
        step = "running ONNX Runtime"
        self._example.begin()
        job = {"check": self._check_of(build)}
        try:
            call_until_done(
                self._builder.pool,
                compute_references,
                job,
                Computed(),
                self.count,
                step,
                progress=self._builder.progress,
                seconds=_VERIFY_SECONDS,
            )
        except DisturbedError:
            raise
        except CompileError as error:
            raise self._example.failed(error) from None
