"""Integrated profiling: runs the best plans and the stock model as whole networks, and selects the best right one.

The objective defines the best: the fastest, the one with the least memory, or the one with the fastest first inference.
Networks that exceed the user's memory limit when they run are excluded, whatever was predicted.

Runs are stored like the layers' times, so that a second compilation need not compile or run these networks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.digest import digest
from sartor.codegen.source_digest import source_digest
from sartor.errors import DisturbedError
from sartor.frontend import import_job
from sartor.planning.recipe import Recipe
from sartor.profiling import dispatch_job, verify_job
from sartor.profiling.builder import Builder
from sartor.profiling.error_bound import THAT_RAN, ErrorBound
from sartor.profiling.network_runner import NetRunner
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.cost_tables import in_network
from sartor.tuning.cost_tables.in_network import InNetworkTimes, Symbols
from sartor.tuning.networks import build_job, profile_job
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, reference_version, runtime_key
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.programming.infeasible import LimitError, amount, unmet
from sartor.tuning.store.store import Store

_UNSPLIT = "unsplit"
# This ratio of times is more than the variation between runs of a network.
_FAR_BEHIND = 1.4
# Modules whose source determines the time and the error of a network: its stitching, running and comparison.
_JOBS = (
    dispatch_job.__name__,
    import_job.__name__,
    in_network.__name__,
    build_job.__name__,
    profile_job.__name__,
    verify_job.__name__,
)


@dataclass(frozen=True)
class Profiled:
    """The best recipe, with its measurements.

    Attributes:
        recipe: the recipe to ship.
        seconds: typical time of one inference.
        error: of the outputs against ONNX Runtime.
        baseline: the unsplit model's time in the same run; None if it was not among the recipes, or wrong.
        memory: bytes of weights, activations, inputs and outputs; None if not known.
        first: seconds until the end of the first inference, None if they do not matter.
    """

    recipe: Recipe
    seconds: float
    error: float | None
    baseline: float | None
    memory: int | None = None
    first: float | None = None


class Profiler:
    """Measures whole networks, and stores the results.

    Args:
        store: for runs.
        builder: compiles recipes.
        samples: inputs.
    """

    def __init__(self, store: Store, builder: Builder, samples: SampleSet) -> None:
        self._store = store
        self._builder = builder
        self._imported = builder.imported
        self._config = builder.config
        self._bound = ErrorBound.of(builder.imported, samples, self._config.error_budget, self._config.precision)
        self._runner = NetRunner(builder, samples, self._bound)
        self._contradicted: dict[MeasurementKey, Measurement] = {}

    @property
    def runner(self) -> NetRunner:
        """Runs networks on the samples."""
        return self._runner

    @property
    def counts_memory(self) -> bool:
        """Whether networks' memory is measured."""
        return self._config.target.device == "cpu"

    @property
    def build_seconds(self) -> float | None:
        """Seconds of the longest build so far; None if there was none."""
        return self._builder.seconds

    @property
    def sample_count(self) -> int:
        """Number of samples on which errors are measured."""
        return self._runner.verified_count

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
        key = self._verified_key(recipe)
        if self._runner.verifies and self._is_right(recipe) and self._stored(key) is None:
            (built,) = self._builder.build([recipe])
            run = self._runner.verify(built)
            self._store.put(Measurement(key, run.status, run.samples, error=run.error, message=run.message))
        return self._is_right(recipe)

    def _is_right(self, recipe: Recipe) -> bool:
        run = self.run_of(recipe)
        return run is not None and run.status is Status.OK

    def run(self, recipes: Sequence[Recipe]) -> None:
        """Run new recipes, together with known ones of similar times, as times of different runs cannot be compared.

        Raises:
            CompileError: if none compiles.
        """
        if not all(self._is_known(self.run_of(recipe)) for recipe in recipes):
            self._measure([recipe for recipe in recipes if not self._is_far_behind(recipe, recipes)])

    def _is_far_behind(self, recipe: Recipe, others: Sequence[Recipe]) -> bool:
        """Whether a network, often the stock model, is known to be too slow to be run again."""
        own = self.run_of(recipe)
        if own is None or own.status is not Status.OK or not self._is_known(own):
            return False
        runs = (self.run_of(other) for other in others)
        return own.time > _FAR_BEHIND * min(run.time for run in runs if run is not None and run.status is Status.OK)

    def run_of(self, recipe: Recipe) -> Measurement | None:
        """The run of a recipe, judged by this compilation's bound; None if it did not run.

        If the recipe was verified, the error is that on all samples.
        """
        key = self._key(recipe)
        if key in self._contradicted:
            return self._contradicted[key]
        if not self._runner.verifies:
            return self._stored(key)
        run, verified = self._store.get(key), self._stored(self._verified_key(recipe))
        if run is None or verified is None or run.status is not Status.OK:
            return run
        return replace(run, status=verified.status, error=verified.error, message=verified.message)

    def _stored(self, key: MeasurementKey) -> Measurement | None:
        """A stored run, judged; None if it must be measured again."""
        found = self._store.get(key)
        return None if found is None else self._bound.stored(found)

    def contradict(self, recipe: Recipe, run: NetRun) -> None:
        """Replace the stored run of a recipe by a later run that was wrong.

        Raises:
            DisturbedError: if the later run was disturbed.
        """
        keys = [self._key(recipe), *([self._verified_key(recipe)] if self._runner.verifies else [])]
        found = [Measurement(key, run.status, error=run.error, message=run.message) for key in keys]
        if found[0].is_transient:
            raise DisturbedError(f"checking the module was disturbed: {run.message}; try again")
        self._store.put_many(found)
        # The store may not keep measurements.
        self._contradicted[found[0].key] = found[0]

    def in_network(self, recipes: Sequence[Recipe]) -> InNetworkTimes:
        """Times of layers within split networks, from IREE's statistics of dispatches.

        Networks are timed in turn, and again when they are compared with others, as times of different runs cannot be
        compared. Networks that fail are left out.

        Args:
            recipes: of networks that ran.

        Raises:
            CompileError: if no network compiles.
            DeviceError: if none runs.
        """
        symbols = {each.digest: Symbols.of(each.graph, each.variants, self._config.target.device) for each in recipes}
        keys = self._in_network_keys(recipes)
        known = dict(self._store.get_many(keys.values()))
        if not known:
            builds = [(each, self._seconds(each.recipe)) for each in self._builder.build(recipes)]
            found = self._runner.dispatches(builds)
            for build, _ in builds:
                if build.digest in found:
                    key, taken = keys[build.digest], symbols[build.digest].seconds(found[build.digest])
                    known[key] = Measurement(key, Status.OK, taken)
            self._store.put_many(known.values())
        return InNetworkTimes.mean(
            [symbols[each].in_network(known[key].samples) for each, key in keys.items() if key in known]
        )

    def _in_network_keys(self, recipes: Sequence[Recipe]) -> dict[str, MeasurementKey]:
        """The keys under which times of networks that are timed in turn are stored, by digest of the recipe."""
        keys = {each.digest: self._key(each) for each in recipes}
        run = digest(str(self._runner.passes), *sorted(each.variant for each in keys.values()))
        return {recipe: _part(key, f"in-place:{run}") for recipe, key in keys.items()}

    def _seconds(self, recipe: Recipe) -> float:
        """Seconds of one inference of a network that ran."""
        run = self.run_of(recipe)
        if run is None:
            raise ValueError("a network is timed in place before it ran")
        return run.time

    def _key(self, recipe: Recipe) -> MeasurementKey:
        """The key under which a network is stored, from its code and from the criterion of its check."""
        codes = [each.implementation.digest for _, each in sorted(recipe.variants.items())]
        codes = codes or [hashlib.sha256(self._imported.unsplit).hexdigest()]
        # Parameters of the code, without which it does not determine the network.
        ranges = [f"{value} {form}" for value, form in sorted(recipe.plan.ranges.items())]
        name = _UNSPLIT if recipe.plan.unsplit else f"plan:{digest(*codes)}"
        return MeasurementKey(
            task=f"net:{self._imported.sha256[:16]}",
            variant=name,
            source=digest(*codes, *ranges, self._runner.criterion, source_digest(*_JOBS), reference_version()),
            hardware=host().key,
            threads=self._config.threads,
            runtime=runtime_key(),
            backend=self._config.target.key,
        )

    def _verified_key(self, recipe: Recipe) -> MeasurementKey:
        return _part(self._key(recipe), "verified")

    def _is_known(self, run: Measurement | None) -> bool:
        """Whether a stored run need not be repeated; runs of older versions lack the memory."""
        if run is None:
            return False
        wanted = self.counts_memory and Quantity.MEMORY in self._config.quantities
        return run.status is not Status.OK or run.packed_bytes > 0 or not wanted

    def _measure(self, recipes: Sequence[Recipe]) -> None:
        """Run all recipes in turn, and store the runs."""
        self._runner.begin()
        runs = self._runner.profile(self._builder.build(recipes))
        for recipe in recipes:
            run = runs.get(recipe.digest) or self._builder.failure(recipe)
            self._store.put(
                Measurement(
                    self._key(recipe),
                    run.status,
                    run.samples,
                    error=run.error,
                    message=run.message,
                    packed_bytes=run.memory or 0,
                )
            )

    def _first(self, recipes: Sequence[Recipe]) -> dict[str, float]:
        """Seconds until the end of the first inference, by digest of the recipe; empty if they do not matter."""
        if self._config.objective is not Objective.COLD:
            return {}
        keys = {recipe.digest: _part(self._key(recipe), "first") for recipe in recipes}
        known = self._store.get_many(keys.values())
        if not all(key in known for key in keys.values()):
            builds = self._builder.build(recipes)
            for build, samples in self._runner.first(builds).items():
                if samples:
                    self._store.put(Measurement(keys[build], Status.OK, samples))
            known = self._store.get_many(keys.values())
        return {recipe: known[key].time for recipe, key in keys.items() if key in known}

    def _best(self, recipes: Sequence[Recipe]) -> Profiled:
        runs = {recipe.digest: run for recipe in recipes if (run := self.run_of(recipe)) is not None}
        correct = [(recipe, run) for recipe in recipes if (run := runs.get(recipe.digest)) and run.status is Status.OK]
        if not correct:
            raise self._bound.refusal(list(runs.values()))
        kept = [(recipe, run) for recipe, run in correct if self._keeps_limits(recipe, run)]
        if not kept:
            raise self._too_large([run for _, run in correct])
        first = self._first([recipe for recipe, _ in kept])
        best, measured = min(kept, key=lambda pair: self._rank(pair[1], first.get(pair[0].digest)))
        baseline = next((run.time for recipe, run in correct if recipe.plan.unsplit), None)
        memory = measured.packed_bytes or None
        return Profiled(best, measured.time, measured.error, baseline, memory, first.get(best.digest))

    def _keeps_limits(self, recipe: Recipe, run: Measurement) -> bool:
        """Whether the memory is within the limit; predicted if it was not measured."""
        limit = self._config.memory_limit
        if limit is None or (not run.packed_bytes and not recipe.plan.unsplit):
            return True
        return 0 < run.packed_bytes <= limit

    def _rank(self, run: Measurement, first: float | None) -> tuple[float, float]:
        """Sort key of runs, smaller is better."""
        if self._config.objective is Objective.MEMORY:
            return run.packed_bytes or math.inf, run.time
        return first or run.time, run.time

    def _too_large(self, runs: Sequence[Measurement]) -> LimitError:
        limit = self._config.memory_limit or 0
        least = float(min(run.packed_bytes for run in runs))
        if not least:
            message = f"the memory limit of {amount(Quantity.MEMORY, float(limit))} cannot be met by any plan"
            return LimitError(f"{message}, and what the unsplit model takes is not known on this device", {})
        return LimitError(unmet(Quantity.MEMORY, limit, least, THAT_RAN), {Quantity.MEMORY: least})


def _part(key: MeasurementKey, name: str) -> MeasurementKey:
    """The key of another property of a network."""
    return replace(key, variant=f"{key.variant}:{name}")
