"""Runs networks of open sizes with several sizes: their time is the mean of calls, and each size is checked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.frontend.kept_import import HashedImport
from sartor.profiling.builder import Build, Builder
from sartor.profiling.cache_check import CachingModel, verify_caches
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import is_open, judged
from sartor.profiling.verifier import Verifier
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status

_ADVICE = (
    "if the model computes in another way for small sizes, as with the first 100 rows of any number, begin the range "
    "above them, or give the sizes that occur, as --shape x=1|8,16"
)


@dataclass(frozen=True)
class SizedRuns:
    """Runs networks with some sizes.

    Attributes:
        call: the sizes, and how many of all calls have them; with a share of 0 networks are checked alone.
        runner: runs them.
    """

    call: SizedCall
    runner: NetRunner


class SizedNets(NetRunner):
    """Runs builds of one model of open sizes.

    Args:
        builder, samples, budget: as for ``NetRunner``, with the largest sizes.
        share: how many of all calls have these.
        others: with other sizes.
        caching: the model whose caches builds keep; None if they keep none.
    """

    def __init__(
        self,
        builder: Builder,
        samples: SampleSet,
        budget: ErrorBudget,
        share: float,
        others: Sequence[SizedRuns],
        *,
        caching: CachingModel | None = None,
    ) -> None:
        # Several sizes are timed in place of several processes.
        super().__init__(builder, samples, budget, is_hurried=True)
        self._share, self._caching = share, caching
        self.others = tuple(others)
        self._timed = tuple(other for other in others if other.call.share)
        # Of each build with the largest sizes, and with those of others.
        self._seconds: dict[str, list[float]] = {}

    def accepting(self, budget: ErrorBudget) -> SizedNets:
        """The same of files with another plan, to which rounding is permitted: calls may be as far off as its budget
        accepts, if that is more."""
        judge = copy(self)
        if budget.accepted > self.budget.accepted:
            judge._verifier = Verifier(self._builder, self._samples, budget, self._example)
        return judge

    @property
    def permitted_error(self) -> float:
        """The error by all the rounding that the model permits."""
        return self._samples.permitted_error

    def checking(self, others: Sequence[SizedRuns]) -> SizedNets:
        """The same of builds that are checked with these sizes, too."""
        judge = copy(self)
        judge.others = (*self.others, *others)
        return judge

    @property
    def criterion(self) -> str:
        """Identifies the measure and the samples, and the calls whose mean time is measured."""
        return f"{super().criterion} {self._share:.3g} {'; '.join(str(runs.call) for runs in self._timed)}"

    def keep(self, hashed: HashedImport) -> None:
        """As ``NetRunner.keep``, with all sizes."""
        super().keep(hashed)
        for other in self.others:
            if (own := other.runner.builder.hashed_import()) is not None:
                other.runner.keep(own)

    def profile(self, builds: Sequence[Build]) -> dict[str, NetRun]:
        """As ``NetRunner.profile``; times are means over calls, and the first failure at any size counts."""
        profiled = [(self._share, super().profile(builds))]
        profiled += [(timed.call.share, timed.runner.profile(builds)) for timed in self._timed]
        for build in builds:
            own = [runs[build.digest] for _, runs in profiled]
            self._seconds[build.digest] = [run.seconds if run.samples else math.inf for run in own]
        return {build.digest: _mean([(share, runs[build.digest]) for share, runs in profiled]) for build in builds}

    def with_threads(self, build: Build, counts: Sequence[int]) -> dict[int, tuple[float, ...]]:
        """As ``NetRunner.with_threads``, in the mean over calls."""
        runs_of_calls = [(self._share, super().with_threads(build, counts))]
        runs_of_calls += [(runs.call.share, runs.runner.with_threads(build, counts)) for runs in self._timed]
        return {count: _mean_samples([(share, taken[count]) for share, taken in runs_of_calls]) for count in counts}

    def dispatches(self, builds: Sequence[tuple[Build, float]], passes: int) -> dict[str, list[tuple[Dispatch, ...]]]:
        """As ``NetRunner.dispatches``, in the mean over calls, with each size as often as its own time allows."""
        runners = [
            (self._share, super().dispatches),
            *((runs.call.share, runs.runner.dispatches) for runs in self._timed),
        ]
        own = [
            [(build, self._own_seconds(build, index, mean)) for build, mean in builds] for index in range(len(runners))
        ]
        passes_of_calls = [
            (share, dispatches(timed, passes)) for (share, dispatches), timed in zip(runners, own, strict=True)
        ]
        common = [build.digest for build, _ in builds if all(build.digest in timed for _, timed in passes_of_calls)]
        return {digest: _mean_passes([(share, timed[digest]) for share, timed in passes_of_calls]) for digest in common}

    def _own_seconds(self, build: Build, index: int, mean: float) -> float:
        """The time of an inference with the sizes of a timed call; at most, if an earlier run timed the build."""
        known = self._seconds.get(build.digest)
        share = (self._share, *(runs.call.share for runs in self._timed))[index]
        return known[index] if known is not None else mean / share if share else math.inf

    def verify(self, build: Build) -> NetRun:
        """As ``NetRunner.verify``; of what may round, the run with the largest error with any size and in calls, by
        which less is rounded: with small sizes rounding does more.

        Raises:
            UsageError, DisturbedError, ReferenceFailedError: as ``NetRunner.verify``.
        """
        worst = super().verify(build)
        if not self.budget.narrow:
            return worst
        for runs in self.others:
            if worst.status is not Status.OK:
                return worst
            run = runs.runner.verify(build)
            worst = max(worst, run, key=_error) if run.status is Status.OK else run
        return self._called(build, worst)

    def _called(self, build: Build, run: NetRun) -> NetRun:
        """The judged run of calls that keep caches, if it has the larger error."""
        if run.status is not Status.OK or self._caching is None:
            return run
        return self._verifier.judged_calls(build, run, verify_caches, {"model": self._caching})

    def judged(self, build: Build) -> NetRun:
        """The judged run at all sizes: the first failure, or the run with the largest error; if it keeps caches, by
        several calls as well.

        Raises:
            RewriteError: if the rewritten model is wrong.
        """
        last, told = self.others[-1] if self.others else None, ""
        worst = self._judged_alone(build)
        for runs in self.others:
            if worst.status is not Status.OK:
                return worst
            run = _judged_at(runs.runner, build, compares=runs is last)
            if run.status is not Status.OK:
                # Without its error it is not judged again, which would forget the sizes.
                return replace(run, error=None, message=f"with {runs.call.named}: {run.message}; {_ADVICE}")
            told = f"with {runs.call.named}: {run.layers}" if run.layers else told
            worst = max(worst, run, key=_error)
        worst = self._called(build, worst)
        return replace(worst, layers=told) if worst.status is Status.OK and self.others else worst

    def judged_calls(
        self, build: Build, run: NetRun, verifying: Callable[..., Any], job: Mapping[str, object]
    ) -> NetRun:
        """As ``Verifier.judged_calls``, on samples of the largest sizes."""
        return self._verifier.judged_calls(build, run, verifying, job)

    def _judged_alone(self, build: Build) -> NetRun:
        """The judged run with the largest sizes."""
        run = judged(super().verify(build), self.budget)
        return super().judged(build) if _is_undecided(run, self.budget, build) else run


def _judged_at(runner: NetRunner, build: Build, *, compares: bool) -> NetRun:
    """The judged run with some sizes: by its layers where only they tell, or if it ``compares``, where rounding hides
    what they do wrong."""
    if compares and runner.budget.asks_layers and runner.budget.rounds:
        return runner.judged(build)
    run = judged(runner.verify(build), runner.budget)
    return runner.judged(build) if _is_undecided(run, runner.budget, build) else run


def _is_undecided(run: NetRun, budget: ErrorBudget, build: Build) -> bool:
    """Whether a run was judged wrong by an error about which layers have to be asked."""
    return run.status is Status.WRONG_RESULT and is_open(run, budget, build.recipe)


def _error(run: NetRun) -> float:
    return run.error or 0.0


def _mean(runs: Sequence[tuple[float, NetRun]]) -> NetRun:
    """The mean run: a failure if there is one; the memory is that of the first."""
    first = runs[0][1]
    failed = next((run for _, run in runs if run.status is not Status.OK), None)
    if failed is not None:
        return failed
    errors = [run.error for _, run in runs if run.error is not None]
    samples = _mean_samples([(share, run.samples) for share, run in runs])
    by_call = tuple(run.samples for share, run in runs if share)
    return replace(first, samples=samples, error=max(errors, default=first.error), by_call=by_call)


def _mean_samples(samples: Iterable[tuple[float, Sequence[float]]]) -> tuple[float, ...]:
    """The mean of each first sample, each second, and so on, as far as all have one."""
    scaled = [[share * second for second in taken] for share, taken in samples]
    return tuple(sum(parts) for parts in zip(*scaled, strict=False))


def _mean_passes(passes: Sequence[tuple[float, Sequence[tuple[Dispatch, ...]]]]) -> list[tuple[Dispatch, ...]]:
    """The mean of each pass of the first with those of the others, which may have fewer."""
    count = len(passes[0][1])
    return [
        _mean_dispatches([(share, taken[number % len(taken)]) for share, taken in passes]) for number in range(count)
    ]


def _mean_dispatches(parts: Iterable[tuple[float, Iterable[Dispatch]]]) -> tuple[Dispatch, ...]:
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = {}
    for share, dispatches in parts:
        for dispatch in dispatches:
            seconds[dispatch.name] += share * dispatch.seconds
            calls[dispatch.name] = dispatch.calls
    kept: Mapping[str, float] = seconds
    return tuple(Dispatch(name, calls[name], kept[name]) for name in sorted(kept, key=lambda name: -kept[name]))
