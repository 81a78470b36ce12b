"""Selects again by the layers' times in the network, until the shipped plan takes the predicted time.

Times of layers measured alone differ by a tenth or more from those in a network, each by another ratio. So the best
plan runs as a whole network, IREE's statistics give the times of its layers there, and the tables are corrected by
these before the next plan is selected.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sartor.config import CompileConfig
from sartor.errors import DeviceError, InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe, plan_with_network_times, timed_plan
from sartor.planning.single_type_plans import single_precision_plans
from sartor.planning.tightened_limits import tightened
from sartor.profiling.profiler import Profiled, Profiler
from sartor.profiling.time_budget import TimeBudget
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity

_LOG = logging.getLogger(__name__)
_ROUNDS = 5
_LIMIT_ROUNDS = 4
# A plan must be predicted to be faster by this ratio to be compiled and run.
_WORTHWHILE = 0.99
# Plans slower than the best by this ratio are not timed in the network, as their layers are hardly useful.
_NEAR = 1.3
# A prediction with a larger relative error is replaced by the sum of the times measured in the network.
_CLOSE = 0.1


@dataclass(frozen=True)
class Refined:
    """The result of a refinement.

    Attributes:
        recipe: the recipe to build.
        profiled: its run.
        plan: its plan with all measured times.
        tables: costs measured alone.
        found: times measured in the network.
        tried: all recipes that were run.
    """

    recipe: Recipe
    profiled: Profiled
    plan: Plan
    tables: Tables
    found: InNetworkTimes
    tried: tuple[Recipe, ...]

    @property
    def placed(self) -> Tables:
        """The tables corrected by times in the network."""
        return corrected(self.tables, self.found)


@dataclass
class Refiner:
    """Runs plans and selects again.

    Attributes:
        config: settings.
        profiler: runs whole networks.
        selector: selects plans.
        budget: the time budget.
    """

    config: CompileConfig
    profiler: Profiler
    selector: PlanSelector
    budget: TimeBudget = field(default_factory=TimeBudget)

    def refine(self, tables: Tables, recipes: Sequence[Recipe]) -> Refined:
        """Find the best right network within the limits.

        Args:
            tables: costs measured alone.
            recipes: those to run first: the selected plans, and the unsplit model.

        Raises:
            CompileError: if none is right.
            LimitError: if the right ones exceed the memory limit, or none keeps to the user's error bound.
        """
        tried, tables, limits = self._keeping_limits(tables, recipes)
        newest = next(filter(self._ran, reversed(tried[len(recipes) :])), recipes[0])
        found = InNetworkTimes()
        profiled = self.profiler.profile(tried)
        # The network does not change a variant's memory.
        for _ in range(0 if self.config.objective is Objective.MEMORY else _ROUNDS):
            if profiled.recipe.plan.unsplit or not self._ran(newest):
                break
            found |= self._in_network(self._near(newest, tried, profiled.seconds))
            try:
                selected, tables = self._selected(tables, found, limits)
            except InfeasibleError:
                # No plan keeps to the limits by the tables; the one that did when it ran was the last resort.
                break
            placed = corrected(tables, found)
            selected = [each for each in selected if self._is_worthwhile(each, tried, profiled, placed)]
            if not selected or not self._has_time():
                break
            tried.extend(selected)
            profiled = self.profiler.profile(tried)
            newest = next(filter(self._ran, selected), selected[0])
        return self._told(profiled, tables, found, tried)

    def next_best(self, refined: Refined) -> Refined:
        """The best of the other networks that were run, after the best one proved wrong.

        Raises:
            CompileError: if none is right.
            LimitError: as ``refine``.
        """
        profiled = self.profiler.profile(refined.tried)
        return self._told(profiled, refined.tables, refined.found, refined.tried)

    def _selected(self, tables: Tables, found: InNetworkTimes, limits: Limits) -> tuple[list[Recipe], Tables]:
        """The best plan by times in the network, and if there is time, the plans in single types of similar time.

        The returned tables contain newly measured conversions, with times measured alone.

        Raises:
            InfeasibleError: if no plan keeps to the limits.
        """
        (best, *_), placed = self.selector.select(corrected(tables, found), limits)
        single: list[Recipe] = []
        if self.budget.is_bounded:
            _LOG.info("the time budget leaves plans in one type as they were selected first")
        else:
            single, placed = single_precision_plans(self.selector, placed, [best], limits)
        return [best, *single], replace(tables, adapts={**placed.adapts, **tables.adapts})

    def _keeping_limits(self, tables: Tables, recipes: Sequence[Recipe]) -> tuple[list[Recipe], Tables, Limits]:
        """Run plans and tighten the limits until a plan keeps them when it runs; returns all runs, and the limits.

        If a run shows that errors inside kernels count less than expected, a faster plan may follow.
        """
        tried, newest, limits = list(recipes), recipes[0], self.config.limits
        for _ in range(_LIMIT_ROUNDS):
            self.profiler.run(tried)
            self.profiler.verify(newest)
            before, tables = tables, self._learned(tables, newest)
            if tables.propagated_fraction != before.propagated_fraction:
                # The old bound was in the scale of the old tables.
                limits = replace(limits, error=self.config.limits.error)
            again, tables = self._again(before, tables, newest, limits)
            if again is None or any(again[0].is_same_as(each) for each in tried):
                break
            newest, limits = again
            _LOG.info("selected again, what was run being known, under limits of %s", dict(limits.bounds))
            tried.append(newest)
        self.profiler.run(tried)
        return tried, tables, limits

    def _again(
        self, before: Tables, tables: Tables, newest: Recipe, limits: Limits
    ) -> tuple[tuple[Recipe, Limits] | None, Tables]:
        """A plan to run after one that exceeded limits, or showed that faster ones may keep to them, with its limits.

        Args:
            before: tables by which the last plan was selected.
            tables: tables corrected by its run.
            newest: the last plan.
            limits: limits in the scale of ``tables``.
        """
        run = self.profiler.run_of(newest)
        is_wrong = run is not None and run.status is Status.WRONG_RESULT
        tighter = self._tightened(limits, newest, run)
        if tables.propagated_fraction != before.propagated_fraction and (
            is_wrong or tables.propagated_fraction < before.propagated_fraction
        ):
            bounds = replace(tighter or limits, error=limits.error)
            selected, tables = self._within(tables, bounds)
            if not (is_wrong and selected and selected[0].is_same_as(newest)):
                is_better = selected and (is_wrong or tighter or self._is_faster(selected[0], newest, tables))
                return ((selected[0], bounds) if is_better else None), tables
            # The corrected tables do not exclude it; these are its sums by them.
            newest, tighter = selected[0], self._tightened(bounds, selected[0], run)
        if tighter is None:
            return None, tables
        selected, tables = self._within(tables, tighter)
        return ((selected[0], tighter) if selected else None), tables

    def _tightened(self, limits: Limits, recipe: Recipe, run: Measurement | None) -> Limits | None:
        return tightened(limits, recipe, run, self.config.memory_limit, self.selector.budget)

    def _is_faster(self, recipe: Recipe, other: Recipe, tables: Tables) -> bool:
        """Whether a plan is predicted to be faster than another by the same tables."""
        return self._promise(recipe, tables) < _WORTHWHILE * self._promise(other, tables)

    def _within(self, tables: Tables, limits: Limits) -> tuple[list[Recipe], Tables]:
        """The plans within limits, or the last resort."""
        try:
            return self.selector.select(tables, limits)
        except InfeasibleError:
            return self._last_resort(tables, limits), tables

    def _learned(self, tables: Tables, recipe: Recipe) -> Tables:
        """The tables corrected by a plan's measured error; unchanged if it tells nothing."""
        run = self.profiler.run_of(recipe)
        if run is None or run.error is None or recipe.plan.unsplit or not self._has_time():
            return tables
        return self.selector.fitted(tables, recipe, run.error)

    def _last_resort(self, tables: Tables, tighter: Limits) -> list[Recipe]:
        """The smallest or the most exact plan by the tables, if no plan keeps to tighter limits."""
        if tighter.memory is not None:
            return self.selector.solver.smallest(tables)[0]
        return [] if tighter.error is None else self.selector.solver.most_exact(tables)[0]

    def _ran(self, recipe: Recipe) -> bool:
        run = self.profiler.run_of(recipe)
        return run is not None and run.status is Status.OK

    def _near(self, newest: Recipe, tried: Sequence[Recipe], seconds: float) -> list[Recipe]:
        """The newest plan, and if there is time plans nearly as fast as the best, which may have other variants."""
        if self.budget.is_bounded:
            return [newest]
        split = [each for each in tried if not each.plan.unsplit and each is not newest]
        runs = [(each, run) for each in split if (run := self.profiler.run_of(each)) and run.status is Status.OK]
        return [newest, *(each for each, run in runs if run.time < _NEAR * seconds)]

    def _in_network(self, recipes: Sequence[Recipe]) -> InNetworkTimes:
        if not self.budget.allows_timing_in_network(self.selector.imported):
            return InNetworkTimes()
        try:
            return self.profiler.in_network(recipes)
        except DeviceError as error:
            _LOG.warning("layers were not timed in place: %s", error)
            return InNetworkTimes()

    def _has_time(self) -> bool:
        """Whether the budget allows another build."""
        return self.budget.allows_build(self.selector.imported, self.profiler.build_seconds)

    def _is_worthwhile(self, recipe: Recipe, tried: Sequence[Recipe], profiled: Profiled, tables: Tables) -> bool:
        """Whether a plan is new, and is predicted to be faster than the best so far by the same tables."""
        if any(recipe.is_same_as(each) for each in tried):
            return False
        return self._is_faster(recipe, profiled.recipe, tables)

    def _promise(self, recipe: Recipe, tables: Tables) -> float:
        """Predicted seconds of an inference, or of the first one if the objective is cold."""
        warm = timed_plan(recipe, tables).predicted or 0.0
        if self.config.objective is not Objective.COLD:
            return warm
        return warm + recipe.needed[Quantity.COLD] - recipe.needed[Quantity.LATENCY]

    def _told(self, profiled: Profiled, tables: Tables, found: InNetworkTimes, tried: Sequence[Recipe]) -> Refined:
        recipe = profiled.recipe
        if not recipe.plan.unsplit:
            if not all(each in found.layers for each in _pieces(recipe)):
                found |= self._in_network([recipe])
            if abs((recipe.plan.predicted or 0.0) / profiled.seconds - 1) > _CLOSE and self._has_time():
                # The module contains the prediction, which should be accurate, so it is built again.
                recipe = replace(recipe, plan=timed_plan(recipe, corrected(tables, found)))
        plan = replace(
            recipe.plan,
            measured=profiled.seconds,
            baseline=profiled.baseline,
            memory=profiled.memory,
            first=profiled.first,
        )
        return Refined(recipe, profiled, plan_with_network_times(plan, found), tables, found, tuple(tried))


def _pieces(recipe: Recipe) -> list[tuple[str, str]]:
    """Task and variant of each layer."""
    return [(each.task.key, recipe.variants[each.name].descriptor) for each in recipe.graph.layers]
