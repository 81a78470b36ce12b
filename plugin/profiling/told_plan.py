"""The plan that ships, with all that was measured of it and of those that it was compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sartor.planning.plan_selector import WORTHWHILE
from sartor.planning.recipe import Recipe, plan_with_network_times, timed_plan
from sartor.profiling.placed_times import PlacedTimes
from sartor.profiling.profiler import Profiled, Profiler
from sartor.profiling.refinement import Refined
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import ComparedPlan

# A prediction with a larger relative error is replaced by the sum of the times measured in the network.
_CLOSE = 0.1


@dataclass(frozen=True)
class ToldPlan:
    """Tells what was measured of a plan.

    Attributes:
        profiler: ran the networks.
        placed: times layers in them.
        threads: for which plans are selected.
        stock_estimate: seconds that the unsplit model is expected to take, if it did not run.
        has_time: whether the budget allows another build.
    """

    profiler: Profiler
    placed: PlacedTimes
    threads: int
    stock_estimate: float | None
    has_time: Callable[[], bool]

    def told(self, profiled: Profiled, tables: Tables, times: InNetworkTimes, tried: tuple[Recipe, ...]) -> Refined:
        """The result of a refinement, by the run of its best plan, costs measured alone, times measured in networks and
        all plans that ran."""
        if self.has_time():
            # A module that runs best with another number of threads is built again, as its manifest says so.
            profiled = self.profiler.with_best_threads(profiled, tried)
        recipe = profiled.recipe
        if not recipe.plan.unsplit:
            is_known = all(piece in times.layers for piece in _pieces(recipe))
            if not is_known and self.profiler.times_shipped(recipe):
                times |= self.placed.of([recipe], tables)[0]
            if abs((recipe.plan.predicted or 0.0) / profiled.seconds - 1) > _CLOSE and self.has_time():
                # The module contains the prediction, which should be accurate, so it is built again.
                recipe = replace(recipe, plan=timed_plan(recipe, corrected(tables, times)))
        workers = _fastest(profiled.by_threads, self.threads) or recipe.plan.workers
        recipe = replace(recipe, plan=replace(recipe.plan, workers=workers))
        plan = replace(
            recipe.plan,
            by_threads=tuple((profiled.by_threads or dict.fromkeys(filter(None, [workers]), profiled.seconds)).items()),
            measured=profiled.seconds if workers is None else profiled.by_threads.get(workers, profiled.seconds),
            baseline=profiled.baseline,
            stock_estimate=self.stock_estimate if profiled.baseline is None else None,
            memory=profiled.memory,
            first=profiled.first,
            compared=self._compared(recipe, tried, corrected(tables, times)),
            foreseen=timed_plan(recipe, tables).predicted if times.layers and not recipe.plan.unsplit else None,
        )
        return Refined(recipe, profiled, plan_with_network_times(plan, times), tables, times, tried)

    def _compared(self, shipped: Recipe, tried: Sequence[Recipe], tables: Tables) -> tuple[ComparedPlan, ...]:
        """The other split networks that ran, with their times."""
        others = [recipe for recipe in tried if not recipe.plan.unsplit and not recipe.is_same_as(shipped)]
        runs = [(other, self.profiler.run_of(other)) for other in others]
        return tuple(
            ComparedPlan(
                predicted=timed_plan(recipe, tables).predicted,
                measured=run.time if run is not None and run.status is Status.OK else None,
                changes=recipe.changes_from(shipped),
            )
            for recipe, run in runs
        )


def _fastest(by_threads: Mapping[int, float], usual: int) -> int | None:
    """The number of threads if it is faster than the usual one by enough to matter, else None."""
    # Times with other numbers may be known alone, of an earlier compilation, where timing all failed.
    if usual not in by_threads:
        return None
    best = min(by_threads, key=lambda by_thread: by_threads[by_thread])
    return best if by_threads[best] < WORTHWHILE * by_threads[usual] else None


def _pieces(recipe: Recipe) -> list[tuple[str, str]]:
    """Task and variant of each layer that takes time."""
    chosen = ((layer.task.key, recipe.variants[layer.name]) for layer in recipe.graph.layers)
    return [(key, variant.descriptor) for key, variant in chosen if not variant.traits.is_free]
