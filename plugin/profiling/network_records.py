"""Stored runs and times of whole networks, so that a second compilation need not compile or run them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from sartor.codegen.digest import digest
from sartor.codegen.ir.block_packing import block_of
from sartor.codegen.ir.target import Target
from sartor.codegen.source_digest import source_digest
from sartor.errors import DisturbedError
from sartor.frontend import import_job
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.precision.compensation.compensated_weights import identity
from sartor.profiling import verify_job
from sartor.profiling.layers import dispatch_job
from sartor.profiling.layerwise import check_job, instrumented
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import compares_layers, judged_again
from sartor.samples import sample_sets
from sartor.tuning.cost_tables import in_network
from sartor.tuning.networks import build_job, profile_job
from sartor.tuning.networks.prefixes import build_job as prefix_build_job
from sartor.tuning.networks.prefixes import timing_job
from sartor.tuning.networks.profile_job import FirstSamples, NetRun
from sartor.tuning.records.doubts import Doubts
from sartor.tuning.records.measurement import (
    Measurement,
    MeasurementKey,
    Status,
    reference_version,
    runtime_key,
    typical_time,
)
from sartor.tuning.store.store import Store

_UNSPLIT = "unsplit"
_VERIFIED, _FIRST, _LAYERS = "verified", "first", "layers"
_THREADS, _COMPARED, _CALL = "threads:", "compared:", "call:"
# Modules whose source determines the time and the error of a network: its stitching, its inputs, its runs and the
# comparison of its outputs.
_JOBS = (
    check_job.__name__,
    instrumented.__name__,
    dispatch_job.__name__,
    import_job.__name__,
    in_network.__name__,
    build_job.__name__,
    prefix_build_job.__name__,
    timing_job.__name__,
    profile_job.__name__,
    sample_sets.__name__,
    verify_job.__name__,
)


class FirstSeconds(NamedTuple):
    """Seconds until the end of the first inference, where the file is not in the page cache and where it is."""

    dropped: float
    in_memory: float


@dataclass
class NetworkRecords:
    """Runs of networks of one model, judged by this compilation's budget.

    Attributes:
        store: for runs.
        imported: the model.
        target: of the compilation.
        runner: runs them.
        doubts: about stored times.
    """

    store: Store
    imported: ImportedModel
    target: Target
    runner: NetRunner
    doubts: Doubts
    _contradicted: dict[MeasurementKey, Measurement] = field(default_factory=dict)
    _times: dict[MeasurementKey, tuple[float, ...]] = field(default_factory=dict)

    def run_of(self, recipe: Recipe) -> Measurement | None:
        """The run of a recipe, or None; its error is that on all samples, if it was verified.

        Its times are those of the last comparison with others.
        """
        run, times = self._last_run(recipe), self._times.get(self.key(recipe))
        return run if run is None or times is None or run.status is not Status.OK else replace(run, samples=times)

    def _last_run(self, recipe: Recipe) -> Measurement | None:
        """The stored run of a recipe with its error on all samples, or None."""
        key = self.key(recipe)
        if key in self._contradicted:
            return self._contradicted[key]
        if not self.runner.verifies:
            return self._judged(key, recipe)
        run, verified = self.store.get(key), self._judged(self.key(recipe, _VERIFIED), recipe)
        if run is None or verified is None or run.status is not Status.OK:
            return run
        return replace(run, status=verified.status, error=verified.error, message=verified.message)

    def is_verified(self, recipe: Recipe) -> bool:
        """Whether the error of a recipe on all samples is known, or there is only the sample on which it ran."""
        return not self.runner.verifies or self._judged(self.key(recipe, _VERIFIED), recipe) is not None

    def _judged(self, key: MeasurementKey, recipe: Recipe) -> Measurement | None:
        """A stored run, judged, by the layers where these were compared; None if it must be measured again."""
        measurement, budget = self.store.get(key), self.runner.budget
        if measurement is None:
            return None
        if (
            compares_layers(measurement, budget, recipe)
            and (wrong := self.store.get(self.key(recipe, _LAYERS))) is not None
        ):
            # Without an error, by which it would seem to be the user's bound that refuses it.
            return replace(measurement, status=wrong.status, error=None, message=wrong.message)
        return judged_again(measurement, budget, recipe)

    def put(self, recipe: Recipe, run: NetRun, others: float) -> None:
        """Store a run, which replaces an earlier one, and beside which other programs took so many processors."""
        self._times.pop(self.key(recipe), None)
        self.doubts.made(self.key(recipe))
        self.store.put(
            Measurement(
                self.key(recipe),
                run.status,
                run.samples,
                error=run.error,
                message=run.message,
                packed_bytes=run.memory or 0,
                foreign_load=others,
            )
        )
        for number, samples in enumerate(run.by_call):
            self._put_times(self.key(recipe, f"{_CALL}{number}"), samples, others)

    def by_call(self, recipe: Recipe, count: int) -> list[float]:
        """Stored seconds of an inference with the sizes of each call that counts; those from an unknown one on are
        missing.
        """
        runs = (self.store.get(self.key(recipe, f"{_CALL}{number}")) for number in range(count))
        return [run.time for run in takewhile(lambda run: run is not None, runs) if run is not None]

    def put_verified(self, recipe: Recipe, run: NetRun) -> None:
        """Store a run on all samples."""
        key = self.key(recipe, _VERIFIED)
        self.store.put(Measurement(key, run.status, run.samples, error=run.error, message=run.message))

    def contradict(self, recipe: Recipe, run: NetRun) -> None:
        """Replace the stored run of a recipe by a later run that was wrong.

        Raises:
            DisturbedError: if the later run was disturbed.
        """
        if run.layers:
            # The error of the outputs, by which other compilations may judge, stays what it is.
            keys = [self.key(recipe, _LAYERS)]
        else:
            keys = [self.key(recipe), *([self.key(recipe, _VERIFIED)] if self.runner.verifies else [])]
        measurements = [Measurement(key, run.status, error=run.error, message=run.message) for key in keys]
        if measurements[0].is_transient:
            raise DisturbedError(f"checking the module was disturbed: {run.message}; try again")
        self.store.put_many(measurements)
        # The store may not keep measurements.
        self._contradicted[self.key(recipe)] = replace(measurements[0], key=self.key(recipe))

    def first_of(self, recipes: Sequence[Recipe]) -> dict[str, FirstSeconds]:
        """Stored times of the first inference, by digest of the recipe; unknown ones are missing."""
        keys = {recipe.digest: self.key(recipe, _FIRST) for recipe in recipes}
        known = self.doubts.holding(self.store.get_many(keys.values()))
        measurements = {recipe: known[key] for recipe, key in keys.items() if key in known}
        return {
            name: FirstSeconds(measurement.time, typical_time(measurement.baseline_samples))
            for name, measurement in measurements.items()
            if measurement.baseline_samples
        }

    def ask_first(self, recipes: Sequence[Recipe]) -> None:
        """Note that first inferences are timed now: if that fails, earlier times hold."""
        for recipe in recipes:
            self.doubts.made(self.key(recipe, _FIRST))

    def put_first(self, recipes: Sequence[Recipe], samples: Mapping[str, FirstSamples], others: float) -> None:
        """Store samples of the time of the first inference, by digest of the recipe, as ``put`` stores runs."""
        for recipe in recipes:
            if (taken := samples.get(recipe.digest)) and taken.dropped:
                key = self.key(recipe, _FIRST)
                self.store.put(Measurement(key, Status.OK, taken.dropped, taken.in_memory, foreign_load=others))

    def remember(self, recipes: Sequence[Recipe]) -> None:
        """Store the times of networks that are compared, as a run beside others replaces them.

        So a second compilation, which compares the same networks, decides as the first one did.
        """
        for recipe, key in self._compared_keys(recipes):
            run = self.run_of(recipe)
            if run is not None and run.status is Status.OK:
                self._times[self.key(recipe)] = run.samples
                self._put_times(key, run.samples, run.foreign_load)

    def recall(self, recipes: Sequence[Recipe]) -> bool:
        """Use the times with which these networks were compared before; False if they were not."""
        right = [pair for pair in self._compared_keys(recipes) if self._ran(pair[0])]
        known = self.doubts.holding(self.store.get_many(key for _, key in right))
        if len(known) < len(right):
            return False
        self._times |= {self.key(recipe): known[key].samples for recipe, key in right}
        return True

    def _ran(self, recipe: Recipe) -> bool:
        run = self.run_of(recipe)
        return run is not None and run.status is Status.OK

    def _compared_keys(self, recipes: Sequence[Recipe]) -> list[tuple[Recipe, MeasurementKey]]:
        """The recipes with the keys under which their times are stored if they are compared with each other."""
        together = digest(*sorted(self.key(recipe).variant for recipe in recipes))
        return [(recipe, self.key(recipe, f"{_COMPARED}{together}")) for recipe in recipes]

    def thread_times(self, recipe: Recipe, counts: Sequence[int]) -> dict[int, float]:
        """Stored seconds of one inference by number of threads; unknown ones are missing."""
        keys = {count: self.key(recipe, f"{_THREADS}{count}") for count in counts}
        known = self.doubts.holding(self.store.get_many(keys.values()))
        return {count: known[key].time for count, key in keys.items() if key in known}

    def ask_threads(self, recipe: Recipe, counts: Sequence[int]) -> None:
        """Note that a network is timed now by number of threads: if that fails, earlier times hold."""
        for count in counts:
            self.doubts.made(self.key(recipe, f"{_THREADS}{count}"))

    def put_thread_times(self, recipe: Recipe, samples: Mapping[int, tuple[float, ...]], others: float) -> None:
        """Store samples of the time of one inference, by number of threads, as ``put`` stores runs."""
        for count, taken in samples.items():
            self._put_times(self.key(recipe, f"{_THREADS}{count}"), taken, others)

    def _put_times(self, key: MeasurementKey, samples: tuple[float, ...], others: float) -> None:
        self.doubts.made(key)
        self.store.put(Measurement(key, Status.OK, samples, foreign_load=others))

    def in_network_keys(self, recipes: Collection[Recipe], passes: int) -> dict[str, MeasurementKey]:
        """The keys under which times of networks that are timed in turn, in ``passes`` processes, are stored, by digest
        of the recipe."""
        keys = {recipe.digest: self.key(recipe) for recipe in recipes}
        run = digest(str(passes), *sorted(key.variant for key in keys.values()))
        return {recipe.digest: self.key(recipe, f"in-place:{run}") for recipe in recipes}

    def key(self, recipe: Recipe, part: str = "") -> MeasurementKey:
        """The key under which a network is stored, from its code and from the criterion of its check.

        Args:
            recipe: of the network.
            part: another property of the network; empty for its run.
        """
        codes = [variant.implementation.digest for _, variant in sorted(recipe.variants.items())]
        codes = codes or [hashlib.sha256(self.imported.unsplit).hexdigest()]
        # Parameters of the code, without which it does not determine the network.
        ranges = [f"{value} {form}" for value, form in sorted(recipe.plan.ranges.items())]
        if any(block_of(variant.dtype) for variant in recipe.variants.values()):
            ranges.append(identity(recipe.plan.compensated))
        name = _UNSPLIT if recipe.plan.unsplit else f"plan:{digest(*codes)}"
        return MeasurementKey(
            task=f"net:{self.imported.sha256[:16]}",
            variant=f"{name}:{part}" if part else name,
            source=digest(*codes, *ranges, self.runner.criterion, source_digest(*_JOBS), reference_version()),
            hardware=self.store.hardware,
            threads=self.target.threads,
            runtime=runtime_key(),
            backend=self.target.key,
        )
