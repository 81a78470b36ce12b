"""Integrated profiling: runs the best plans and the stock model as whole networks, and selects the best right one.

The objective defines the best: the fastest, the one with the least memory, or the one with the shortest first
inferences, with its file in the page cache and without.
Networks that exceed the user's memory limit when they run are excluded, whatever was predicted.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import TypeVar

from sartor.devices import CPU
from sartor.errors import CompileError, DeviceError
from sartor.frontend.states import writes_rows
from sartor.planning.recipe import Recipe
from sartor.policies import PlanPolicy
from sartor.profiling.builder import Builder
from sartor.profiling.network_records import FirstSeconds, NetworkRecords
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import is_rounded, provisional, refusal, unmet_by_runs
from sartor.tuning.cost_tables.in_network import InNetworkTimes, Symbols
from sartor.tuning.errors.error_measures import MeasureKind
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.doubts import Doubts
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.programming.infeasible import LimitError, amount
from sartor.tuning.store.store import Store

_LOG = logging.getLogger(__name__)
_Measured = TypeVar("_Measured")
# This ratio of times is more than the variation between runs of a network.
_FAR_BEHIND = 1.4
# Times of two networks that were not timed in turn must differ by more than this ratio.
_FASTER = 0.95
# Longer inferences are faster with all threads.
_SHORT = 5e-3

# On Vulkan, of one beginning for each layer, each of which takes half of an inference; they run eight times.
_MOST_SECONDS_OF_BEGINNINGS = 3.0


@dataclass(frozen=True)
class Profiled:
    """The best recipe, with its measurements.

    Attributes:
        recipe: the recipe to ship.
        seconds: typical time of one inference.
        error: of the outputs against ONNX Runtime.
        baseline: the unsplit model's time in the same run, or with other threads if that is less; None if it was not
            among the recipes, or wrong.
        memory: bytes of weights, activations, inputs and outputs; None if not known.
        first: seconds until the end of the first inference, None if they do not matter.
        by_threads: seconds of one inference by number of threads; empty if they do not matter.
        regrets: ratios of its seconds with the sizes of each call that counts to those of the best network for these;
            empty if they do not matter.
    """

    recipe: Recipe
    seconds: float
    error: float | None
    baseline: float | None
    memory: int | None = None
    first: float | None = None
    by_threads: Mapping[int, float] = field(default_factory=dict)
    regrets: tuple[float, ...] = ()


class Profiler:
    """Measures whole networks, and stores the results.

    Args:
        store: for runs.
        builder: compiles recipes.
        runner: runs them.
        policy: the objective and constraints.
        is_hurried: whether stored runs hold that other programs disturbed: to ask whether they still do takes a second.
    """

    def __init__(
        self, store: Store, builder: Builder, runner: NetRunner, policy: PlanPolicy, *, is_hurried: bool = False
    ) -> None:
        self._store = store
        self._builder = builder
        self._runner = runner
        self._policy = policy
        self._doubts = Doubts(lambda: not is_hurried and builder.pool.is_quiet())
        self._records = NetworkRecords(store, builder.imported, policy.target, runner, self._doubts)

    @property
    def counts_memory(self) -> bool:
        """Whether networks' memory is measured."""
        return self._policy.target.is_cpu

    @property
    def times_dispatches(self) -> bool:
        """Whether plans are selected again by times of layers within networks. By software these take too long."""
        return not self._policy.target.is_software

    def times_shipped(self, recipe: Recipe) -> bool:
        """Whether the layers of the plan that ships are timed within the network.

        On Vulkan beginnings of the network run for each layer, which takes a software driver minutes.
        """
        run = self.run_of(recipe)
        if self.times_dispatches or run is None:
            return self.times_dispatches
        return run.time * len(recipe.graph.layers) <= _MOST_SECONDS_OF_BEGINNINGS

    @property
    def build_seconds(self) -> float | None:
        """Seconds of the longest build so far; None if there was none."""
        return self._builder.seconds

    def profile(self, recipes: Sequence[Recipe]) -> Profiled:
        """The best recipe within the limits whose outputs are right on all samples.

        Raises:
            CompileError: if none is right.
            LimitError: if the right ones exceed the memory limit, or none keeps to the user's error bound.
        """
        self.run(recipes)
        best = self._best(recipes)
        while not self.verify(best.recipe):
            best = self._best(recipes)
        return self._best(recipes)

    def verify(self, recipe: Recipe) -> bool:
        """Check a recipe that ran on all samples, unless that was done before; returns whether its outputs are right.

        Raises:
            UsageError: if the samples cannot be read, or the user's measure fails on them.
        """
        if self.is_right(recipe) and not self._records.is_verified(recipe):
            (built,) = self._builder.build([recipe])
            self._records.put_verified(recipe, self._runner.verify(built))
        return self.is_right(recipe)

    def is_right(self, recipe: Recipe) -> bool:
        """Whether a recipe ran and its outputs are right, on as many samples as it was checked."""
        run = self.run_of(recipe)
        return run is not None and run.status is Status.OK

    def run(self, recipes: Sequence[Recipe]) -> None:
        """Run new recipes, together with known ones of similar times, as times of different runs cannot be compared.

        Recipes that were compared before, also by another compilation, have the times of that comparison.

        Raises:
            CompileError: if none compiles.
        """
        if all(self._is_known(self.run_of(recipe)) and not self._is_doubted(recipe) for recipe in recipes):
            if self._records.recall(recipes):
                return
        else:
            self._measure([recipe for recipe in recipes if not self._is_far_behind(recipe, recipes)])
        self._records.remember(recipes)

    def _is_doubted(self, recipe: Recipe) -> bool:
        """Whether an earlier compilation ran a network beside other programs, which now leave the machine alone."""
        run = self.run_of(recipe)
        return run is not None and self._doubts.about(run)

    def _is_far_behind(self, recipe: Recipe, others: Sequence[Recipe]) -> bool:
        """Whether a network, often the stock model, is known to be too slow to be run again."""
        own = self.run_of(recipe)
        if self._is_doubted(recipe) or own is None or own.status is not Status.OK or not self._is_known(own):
            return False
        runs = (self.run_of(other) for other in others)
        return own.time > _FAR_BEHIND * min(run.time for run in runs if run is not None and run.status is Status.OK)

    def run_of(self, recipe: Recipe) -> Measurement | None:
        """The run of a recipe, judged by this compilation's budget; None if it did not run."""
        return self._records.run_of(recipe)

    def contradict(self, recipe: Recipe, run: NetRun) -> None:
        """Replace the stored run of a recipe by a later run that was wrong.

        Raises:
            DisturbedError: if the later run was disturbed.
        """
        self._records.contradict(recipe, run)

    @property
    def passes(self) -> int:
        """Number of processes in which layers of networks are timed."""
        return self._runner.passes

    def in_network(self, recipes: Sequence[Recipe], passes: int) -> dict[str, InNetworkTimes]:
        """Times of layers within split networks, by digest of the recipe.

        They are from IREE's statistics of dispatches or from beginnings of networks.

        Networks are timed in turn, and again when they are compared with others, as times of different runs cannot be
        compared. Networks that fail are left out, and those with layers on other devices than the first, as IREE's
        tool runs one function on one device.

        Args:
            recipes: of networks that ran.
            passes: number of processes in which they run.

        Raises:
            CompileError: if no network compiles.
            DeviceError: if none runs.
        """
        device = self._policy.target.device
        recipes = [recipe for recipe in recipes if recipe.devices == (device,)]
        if not recipes:
            return {}
        symbols = {recipe.digest: Symbols.of(recipe.graph, recipe.variants, device) for recipe in recipes}
        keys = self._records.in_network_keys(recipes, passes)
        stored = self._store.get_many(keys.values())
        known = self._doubts.holding(stored)
        if not known or len(known) < len(stored):
            builds = [(build, self._seconds(build.recipe)) for build in self._builder.build(recipes)]
            for key in keys.values():
                self._doubts.made(key)
            dispatched, others = self._watched(functools.partial(self._runner.dispatches, builds, passes))
            # What fails now keeps its earlier times.
            known = dict(stored)
            for build, _ in builds:
                if build.digest in dispatched:
                    key, taken = keys[build.digest], symbols[build.digest].seconds(dispatched[build.digest])
                    known[key] = Measurement(key, Status.OK, taken, foreign_load=others)
            self._store.put_many(known.values())
        return {build: symbols[build].in_network(known[key].samples) for build, key in keys.items() if key in known}

    def with_best_threads(self, best: Profiled, recipes: Sequence[Recipe]) -> Profiled:
        """The best network with its times by number of threads, or one that is faster with another number.

        A short inference may be faster with fewer threads than it was tuned for, as handing work to another thread may
        take longer than the work, and any may be faster with threads on efficiency cores too, and then another network
        may be the best.
        """
        runs = [(recipe, self.run_of(recipe)) for recipe in recipes if self.is_right(recipe)]
        right = [recipe for recipe, run in runs if run is not None and self._keeps_limits(recipe, run)]
        times = {recipe.digest: self._thread_times(recipe) for recipe in right}
        known = times.get(best.recipe.digest)
        if not known:
            return best
        stock = min((_least(times[recipe.digest]) for recipe in right if recipe.plan.unsplit), default=math.inf)
        baseline = None if best.baseline is None else min(best.baseline, stock)
        best = replace(best, by_threads=known, baseline=baseline)
        # Nothing ships that ran slower than the stock model; other networks may be faster by chance.
        margins = {recipe.digest: 1.0 if recipe.plan.unsplit else _FASTER for recipe in right}
        faster = [
            recipe
            for recipe in right
            if _least(times[recipe.digest]) < margins[recipe.digest] * min(known.values())
            and self._may_ship(recipe, right)
        ]
        for recipe in sorted(faster, key=lambda recipe: _least(times[recipe.digest])):
            if self.verify(recipe) and (run := self.run_of(recipe)) is not None:
                memory = run.packed_bytes or None
                return Profiled(recipe, run.time, run.error, best.baseline, memory, None, times[recipe.digest])
        return best

    def _thread_times(self, recipe: Recipe) -> dict[int, float]:
        """Seconds of one inference by number of threads, timed in turn; empty if they do not matter."""
        counts = self._thread_counts(recipe)
        if len(counts) == 1:
            return {}
        known = self._records.thread_times(recipe, counts)
        if len(known) < len(counts):
            self._records.ask_threads(recipe, counts)
            try:
                (build,) = self._builder.build([recipe])
                self._records.put_thread_times(
                    recipe, *self._watched(functools.partial(self._runner.with_threads, build, counts))
                )
            except (CompileError, DeviceError) as error:
                _LOG.warning("the best number of threads of a plan is not known: %s", error)
            known = self._records.thread_times(recipe, counts)
        return known

    def _thread_counts(self, recipe: Recipe) -> list[int]:
        """The number of threads that a network is tuned for; before it 1, 2, 4 … if it is short, and behind it the
        number with efficiency cores, if there are some."""
        threads, most = self._policy.target.threads, self._policy.most_threads
        if CPU not in recipe.devices or self._policy.objective is not Objective.LATENCY:
            return [threads]
        powers = (2**power for power in count())
        fewer = takewhile(lambda power: power < threads, powers) if self._seconds(recipe) <= _SHORT else ()
        return [*fewer, threads, *([most] if most > threads else [])]

    def _seconds(self, recipe: Recipe) -> float:
        """Seconds of one inference of a network that ran."""
        run = self.run_of(recipe)
        if run is None:
            raise ValueError("a network is timed in place before it ran")
        return run.time

    def _is_known(self, run: Measurement | None) -> bool:
        """Whether a stored run need not be repeated; runs of older versions lack the memory."""
        if run is None:
            return False
        wanted = self.counts_memory and Quantity.MEMORY in self._policy.quantities
        return run.status is not Status.OK or run.packed_bytes > 0 or not wanted

    def _measure(self, recipes: Sequence[Recipe]) -> None:
        """Run all recipes in turn, and store the runs."""
        self._runner.begin()
        builds = self._builder.build(recipes)
        runs, others = self._watched(functools.partial(self._runner.profile, builds))
        if [
            recipe
            for recipe in recipes
            if self._is_wrong(recipe, runs.get(recipe.digest)) and self._builder.forget(recipe)
        ]:
            builds = self._builder.build(recipes)
            runs, others = self._watched(functools.partial(self._runner.profile, builds))
        for recipe in recipes:
            self._records.put(recipe, runs.get(recipe.digest) or self._builder.failure(recipe), others)

    def _is_wrong(self, recipe: Recipe, run: NetRun | None) -> bool:
        """Whether a network's own code is wrong, as far as its error on one sample tells: that is a relative one."""
        if run is None or self._runner.budget.measure.kind is not MeasureKind.RELATIVE:
            return False
        found_entry = provisional(run, self._runner.budget, recipe)
        return found_entry.status is Status.WRONG_RESULT and not is_rounded(found_entry, self._runner.budget)

    def _watched(self, measure: Callable[[], _Measured]) -> tuple[_Measured, float]:
        """What a measurement finds, and how many processors other programs took meanwhile, if that left too few."""
        self._builder.pool.take_others()
        return measure(), self._builder.pool.take_others()

    def _first(self, recipes: Sequence[Recipe]) -> dict[str, FirstSeconds]:
        """Times of the first inference, by digest of the recipe; empty if they do not matter."""
        if self._policy.objective is not Objective.COLD:
            return {}
        known = self._records.first_of(recipes)
        if not all(recipe.digest in known for recipe in recipes):
            builds = self._builder.build(recipes)
            self._records.ask_first(recipes)
            self._records.put_first(recipes, *self._watched(functools.partial(self._runner.first, builds)))
            known = self._records.first_of(recipes)
        return known

    def _best(self, recipes: Sequence[Recipe]) -> Profiled:
        runs = {recipe.digest: run for recipe in recipes if (run := self.run_of(recipe)) is not None}
        correct = [(recipe, run) for recipe in recipes if (run := runs.get(recipe.digest)) and run.status is Status.OK]
        if not correct:
            raise refusal(list(runs.values()), self._runner.budget)
        kept = [(recipe, run) for recipe, run in correct if self._keeps_limits(recipe, run)]
        if not kept:
            raise self._too_large([run for _, run in correct])
        kept = [pair for pair in kept if self._may_ship(pair[0], [recipe for recipe, _ in kept])]
        first = self._first([recipe for recipe, _ in kept])
        regrets = self._regrets([recipe for recipe, _ in kept])
        best, measured = min(
            kept, key=lambda pair: self._rank(pair[1], first.get(pair[0].digest), regrets.get(pair[0].digest))
        )
        baseline = next((run.time for recipe, run in correct if recipe.plan.unsplit), None)
        memory = measured.packed_bytes or None
        shortest = first.get(best.digest)
        return Profiled(
            *(best, measured.time, measured.error, baseline, memory),
            first=None if shortest is None else shortest.dropped,
            regrets=regrets.get(best.digest, ()),
        )

    def _may_ship(self, recipe: Recipe, right: Sequence[Recipe]) -> bool:
        """Whether a network may ship. Calls of the unsplit one copy a state of which code of layers writes rows where
        they lie, which runs that pass states do not show."""
        is_whole, others = recipe.plan.unsplit, any(not other.plan.unsplit for other in right)
        return not (is_whole and others and writes_rows(self._builder.imported))

    def _regrets(self, recipes: Sequence[Recipe]) -> dict[str, tuple[float, ...]]:
        """Ratios of networks' seconds with the sizes of each call to those of the best of them for these, by digest."""
        count = sum(bool(call.share) for call in self._builder.imported.graph.calls) if self._policy.is_fair else 0
        known = {recipe.digest: self._records.by_call(recipe, count) for recipe in recipes}
        complete = {name: seconds for name, seconds in known.items() if count and len(seconds) == count}
        least = [min(seconds) for seconds in zip(*complete.values(), strict=True)]
        return {
            name: tuple(own / best for own, best in zip(seconds, least, strict=True))
            for name, seconds in complete.items()
        }

    def _keeps_limits(self, recipe: Recipe, run: Measurement) -> bool:
        """Whether the memory is within the limit; predicted if it was not measured."""
        limit = self._policy.limits.memory
        if limit is None or (not run.packed_bytes and not recipe.plan.unsplit):
            return True
        return 0 < run.packed_bytes <= limit

    def _rank(
        self, run: Measurement, first: FirstSeconds | None, regrets: Sequence[float] | None = None
    ) -> tuple[bool, float, float]:
        """Sort key of runs, smaller is better.

        Of first inferences those with the file in the page cache count as much as those without: a plan that reads
        little and executes slowly would lose more in one than it gains in the other.
        """
        if self._policy.objective is Objective.MEMORY:
            return False, run.packed_bytes or math.inf, run.time
        if self._policy.is_fair:
            return regrets is None, max(regrets or [math.inf]), run.time
        # What was not timed comes last, beside what was.
        return first is None, run.time if first is None else sum(first), run.time

    def _too_large(self, runs: Sequence[Measurement]) -> LimitError:
        limit = self._policy.limits.memory or 0
        least = float(min(run.packed_bytes for run in runs))
        if not least:
            message = f"the memory limit of {amount(Quantity.MEMORY, float(limit))} cannot be met by any plan"
            return LimitError(f"{message}, and what the unsplit model takes is not known on this device", {})
        return unmet_by_runs(Quantity.MEMORY, limit, least)


def _least(by_threads: Mapping[int, float]) -> float:
    return min(by_threads.values(), default=math.inf)
