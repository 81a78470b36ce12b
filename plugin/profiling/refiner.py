"""Selects again by the layers' times in the network, until the shipped plan takes the predicted time.

Times of layers measured alone differ by a tenth or more from those in a network, each by another ratio. So the best
plan runs as a whole network, IREE's statistics give the times of its layers there, and the tables are corrected by
these before the next plan is selected.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, DisturbedError, InfeasibleError, LateError
from sartor.planning.contenders.rival_plans import Incumbent, rival_plans
from sartor.planning.contenders.single_type_plans import single_precision_plans
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe, timed_plan
from sartor.planning.tightened_limits import LimitKeeper, Reselected
from sartor.policies import Precision
from sartor.profiling.placed_times import PlacedTimes
from sartor.profiling.profiler import Profiled, Profiler
from sartor.profiling.refinement import Refined, Refinement
from sartor.profiling.told_plan import ToldPlan
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits

_LOG = logging.getLogger(__name__)
BROKEN = (Status.COMPILE_FAILED, Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY)
"""How a plan ends that the device does not run."""

_LIMIT_ROUNDS = 4
_TIMED_ROUNDS = 5
# Times of rivals' layers in the network may lead to a plan that has the best of all.
_RIVAL_ROUNDS = 2
# Layers that are fused or overlap in the unsplit model do not make up for this ratio.
_HOPELESS = 3.0


@dataclass
class Refiner:
    """Runs plans and selects again.

    Attributes:
        profiler: runs whole networks.
        selector: selects plans.
        budget: the time budget.
        reserve: networks that are expected to be far slower than a plan, and run only if no plan is right or allowed,
            or the best one takes so much longer than predicted that they no longer are.
        stock_estimate: seconds that the unsplit model is expected to take, if it is in the reserve.
    """

    profiler: Profiler
    selector: PlanSelector
    budget: TimeBudget = field(default_factory=TimeBudget)
    reserve: tuple[Recipe, ...] = ()
    stock_estimate: float | None = None

    @property
    def _placed(self) -> PlacedTimes:
        return PlacedTimes(self.profiler, self.budget, self.selector.imported)

    @property
    def _telling(self) -> ToldPlan:
        threads = self.selector.policy.target.threads
        return ToldPlan(self.profiler, self._placed, threads, self.stock_estimate, self._has_time)

    def refine(self, tables: Tables, recipes: Sequence[Recipe]) -> Refined:
        """The best right network within the limits, one of the reserve if no other is right or allowed.

        Arguments and errors are those of ``_refine``.
        """
        try:
            return self._refine(tables, recipes)
        except DisturbedError:
            raise
        except (CompileError, InfeasibleError):
            if not self.reserve:
                raise
        return self._refine(tables, [*recipes, *self.reserve])

    def _refine(self, tables: Tables, recipes: Sequence[Recipe]) -> Refined:
        """Find the best right network within the limits.

        Each round runs the plans selected last, and selects again by their runs: first until a plan keeps to the limits
        when it runs, then until times in the network select no new plan.

        Args:
            tables: costs measured alone.
            recipes: those to run first: the selected plans, and the unsplit model.

        Raises:
            CompileError: if none is right.
            LimitError: if the right ones exceed the memory limit, or none keeps to the user's error bound.
        """
        state = Refinement(tuple(recipes), (recipes[0],), tables, self.selector.policy.limits)
        # The network does not change a variant's memory.
        timed = 0 if self.selector.policy.objective is Objective.MEMORY else _TIMED_ROUNDS
        rounds = [self._within_limits] * _LIMIT_ROUNDS + [self._without_rounding] + [self._by_network_times] * timed
        if timed and self.selector.policy.plans > 1:
            rounds += [self._beside_rivals, *[self._by_network_times] * _RIVAL_ROUNDS]
        for select_again in rounds:
            try:
                state = select_again(state)
            except LateError:
                ran = tuple(recipe for recipe in state.tried if self.profiler.run_of(recipe) is not None)
                if not ran:
                    raise
                _LOG.warning("the time budget left no time to build another plan: the best of those that ran ships")
                state = replace(state, tried=ran)
                break
        profiled = state.profiled or self.profiler.profile(state.tried)
        tried = state.tried
        if not self.budget.is_spent and self._doubts_reserve(profiled, tried):
            tried = (*tried, *self.reserve)
            profiled = self.profiler.profile(tried)
        self._warn_of_lost(tried, profiled.recipe)
        return self._telling.told(profiled, state.tables, state.found, tried)

    def _doubts_reserve(self, profiled: Profiled, tried: Sequence[Recipe]) -> bool:
        """Whether the best network took so long that the reserve, which predictions called hopeless, may be faster."""
        if self.stock_estimate is None or all(recipe in tried for recipe in self.reserve):
            return False
        return not is_far_slower(self.stock_estimate, profiled.seconds)

    def _warn_of_lost(self, tried: Sequence[Recipe], shipped: Recipe) -> None:
        """Say which selected plans were lost: another is shipped, perhaps the stock model, which may be far slower.

        A plan that rounds too much is usual where types are narrowed, so it is told only where the stock model ships.
        """
        lost = (*BROKEN, Status.WRONG_RESULT) if shipped.plan.unsplit else BROKEN
        for recipe in tried:
            run = None if recipe.plan.unsplit else self.profiler.run_of(recipe)
            if run is not None and run.status in lost:
                reason = run.message.partition("\n")[0]
                _LOG.warning("a selected plan is left out, as it ended as %s: %s", run.status.value, reason)

    def next_best(self, refined: Refined) -> Refined:
        """The best of the other networks that were run, after the best one proved wrong.

        Raises:
            CompileError: if none is right.
            LimitError: as ``refine``.
        """
        tried = refined.tried
        try:
            profiled = self.profiler.profile(tried)
        except DisturbedError:
            raise
        except (CompileError, InfeasibleError):
            tried = (*tried, *(recipe for recipe in self.reserve if recipe not in tried))
            if len(tried) == len(refined.tried):
                raise
            profiled = self.profiler.profile(tried)
        return self._telling.told(profiled, refined.tables, refined.found, tried)

    def _within_limits(self, state: Refinement) -> Refinement:
        """The state after a round that tightens the limits if the newest plan exceeds them.

        If its run shows that errors inside kernels count less than expected, a faster plan may follow.
        """
        if state.keeps_limits:
            return state
        newest = state.latest[0]
        self.profiler.run(state.tried)
        self.profiler.verify(newest)
        known, run = Reselected(newest, state.limits, state.tables), self.profiler.run_of(newest)
        again = LimitKeeper(self.selector).after(newest, run, known, state.tried, learns=self._has_time())
        state = replace(state, limits=again.limits, tables=again.tables)
        if again.recipe is None:
            return replace(state, keeps_limits=True)
        return replace(state, tried=(*state.tried, again.recipe), latest=(again.recipe, *state.latest))

    def _without_rounding(self, state: Refinement) -> Refinement:
        """The state with plans that round nothing by the tables, and nothing at all, if layers may round and no plan
        that ran is right.

        What rounding does was then foreseen badly, and the stock model may be far slower than such plans.
        """
        if self.selector.errors is None:
            return state
        self.profiler.run(state.tried)
        if any(self._ran(plan) and self.profiler.verify(plan) for plan in state.tried if not plan.plan.unsplit):
            return state
        fresh: list[Recipe] = []
        tables, solver = state.tables, self.selector.solver
        for exact, error in ((solver, 0.0), (solver.in_precision(Precision.F32), None)):
            try:
                (recipe, *_), tables = exact.within(tables, replace(state.limits, error=error))
            except InfeasibleError:
                continue
            if not any(map(recipe.is_same_as, [*state.tried, *fresh])):
                fresh.append(recipe)
        if not fresh:
            return state
        _LOG.warning("no selected plan that rounds is right, so plans that round less or nothing run in its place")
        return replace(state, tried=(*state.tried, *fresh), latest=(*fresh, *state.latest), tables=tables)

    def _by_network_times(self, state: Refinement) -> Refinement:
        """The state after a round that corrects the tables by times in the network."""
        if state.is_settled:
            return state
        if state.profiled is None:
            self.profiler.run(state.tried)
        newest = next(filter(self._ran, state.latest), None)
        profiled = state.profiled or self.profiler.profile(state.tried)
        state = replace(state, profiled=profiled)
        if profiled.recipe.plan.unsplit or newest is None or not self._ran(newest) or self.budget.is_spent:
            return replace(state, is_settled=True)
        for passes in self._passes(state, newest, profiled):
            timed = self._timed_in_place(state, newest, profiled, passes)
            try:
                selected, tables = self._selected(timed.tables, timed.found, timed.limits)
            except InfeasibleError:
                # No plan keeps to the limits by the tables; the one that did when it ran was the last resort.
                return replace(timed, is_settled=True)
            placed = corrected(tables, timed.found)
            selected = [recipe for recipe in selected if self._is_worthwhile(recipe, state.tried, profiled, placed)]
            if not selected or not self._has_time():
                return replace(timed, tables=tables, is_settled=True)
        state = timed
        tried = (*state.tried, *selected)
        return replace(state, tried=tried, latest=tuple(selected), tables=tables, profiled=self.profiler.profile(tried))

    def _passes(self, state: Refinement, newest: Recipe, profiled: Profiled) -> Sequence[int]:
        """In how many processes layers are timed in place, one after the other while that selects another plan.

        Where a single network ran, one process tells whether another plan may be faster at all.
        """
        passes = self.profiler.passes
        near = self._placed.near(newest, state.tried, profiled.seconds)
        is_single = len(near) == 1 and self.selector.policy.plans == 1 and self.profiler.times_dispatches
        return [1, passes] if is_single and passes > 1 else [passes]

    def _timed_in_place(self, state: Refinement, newest: Recipe, profiled: Profiled, passes: int) -> Refinement:
        """The state with times of layers in networks."""
        if not self.profiler.times_dispatches:
            return state
        near = self._placed.near(newest, state.tried, profiled.seconds)
        fitted, seen = self._placed.of(near, state.tables, passes)
        return replace(state, found=state.found | fitted, seen=state.seen | seen)

    def _beside_rivals(self, state: Refinement) -> Refinement:
        """The state after running plans that the tables cannot tell from the best one."""
        settled, best = replace(state, is_settled=True), state.profiled
        if best is None or best.recipe.plan.unsplit or not state.found.layers:
            return settled
        summed = timed_plan(best.recipe, corrected(state.tables, state.seen)).predicted or best.seconds
        incumbent = Incumbent(best.recipe, best.seconds / summed, state.tried, state.found, state.seen, state.limits)
        rivals, tables = rival_plans(self.selector, state.tables, incumbent)
        rivals = [rival for count, rival in enumerate(rivals, 1) if self._has_time(count)]
        if not rivals:
            return replace(settled, tables=tables)
        tried, latest = (*state.tried, *rivals), (*rivals, *state.latest)
        profiled = self.profiler.profile(tried)
        return replace(state, tried=tried, latest=latest, tables=tables, profiled=profiled, is_settled=False)

    def _selected(self, tables: Tables, times: InNetworkTimes, limits: Limits) -> tuple[list[Recipe], Tables]:
        """The best plan by times in the network, and if there is time, the plans in single types of similar time.

        The returned tables contain newly measured conversions, with times measured alone.

        Raises:
            InfeasibleError: if no plan keeps to the limits.
        """
        (best, *_), placed = self.selector.select(corrected(tables, times), limits)
        single: list[Recipe] = []
        if self.budget.is_bounded:
            _LOG.info("the time budget leaves plans in one type as they were selected first")
        else:
            single, placed = single_precision_plans(self.selector, placed, [best], limits)
        return [best, *single], tables.with_adapts(placed)

    def _ran(self, recipe: Recipe) -> bool:
        run = self.profiler.run_of(recipe)
        return run is not None and run.status is Status.OK

    def _has_time(self, builds: int = 1) -> bool:
        """Whether the budget allows further builds."""
        return self.budget.allows_build(self.selector.imported, self.profiler.build_seconds, builds)

    def _is_worthwhile(self, recipe: Recipe, tried: Sequence[Recipe], profiled: Profiled, tables: Tables) -> bool:
        """Whether a plan is new, and is predicted to be faster than the best so far by the same tables."""
        if any(recipe.is_same_as(attempt) for attempt in tried):
            return False
        return self.selector.is_faster(recipe, profiled.recipe, tables)


def is_far_slower(expected: float, seconds: float) -> bool:
    """Whether a network that is expected to take so long need not run beside one that takes ``seconds``."""
    return expected > _HOPELESS * seconds
