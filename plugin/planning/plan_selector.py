"""Selects plans that keep to the error budget, before they are compiled.

Sensitivities rank layers, but do not predict the error of several layers together. So the selector takes a plan within
a bound on the sum of squared errors, simulates the whole plan in ONNX Runtime, moves the bound and selects again, until
the simulated error is allowed and uses most of the budget.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sartor.artifact import ParetoFront, ParetoPoint
from sartor.errors import InfeasibleError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.bound_search import BoundSearch, TriedPlan
from sartor.planning.plan_solver import PlanSolver, Selected
from sartor.planning.recipe import Recipe, timed_plan
from sartor.planning.simulated_error import PlanErrors
from sartor.policies import PlanPolicy, Precision
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity

_LOG = logging.getLogger(__name__)
# Largest number of selections of a plan, and of a front, with other bounds on the sum.
_PLAN_ROUNDS = 8
_FRONT_ROUNDS = 4
WORTHWHILE = 0.99
"""A plan must be predicted to be faster by this ratio to be compiled and run."""

Simulated = list[tuple[Recipe, float | None]]
"""Plans with their simulated errors."""


@dataclass
class PlanSelector:
    """Selects plans of one model.

    Attributes:
        solver: finds plans within limits.
        budget: the error budget.
        errors: predicts their errors; None if no layer may round.
        gain: fraction of its time that a plan must be predicted to save to be compiled and run.
        by_call: measurements with the sizes of each call that counts, if plans shall be near the best for each; else
            empty.
    """

    solver: PlanSolver
    budget: ErrorBudget
    errors: PlanErrors | None = None
    gain: float = 1 - WORTHWHILE
    by_call: tuple[Mapping[str, Mapping[str, Measurement]], ...] = ()
    _bound: float | None = field(default=None, init=False)

    @property
    def imported(self) -> ImportedModel:
        """The model."""
        return self.solver.imported

    @property
    def policy(self) -> PlanPolicy:
        """Further constraints on plans, and the objective."""
        return self.solver.policy

    @property
    def bound(self) -> float | None:
        """The bound on the sum with which the last selected plan kept to the budget; None for no bound."""
        return self._bound

    def in_precision(self, precision: Precision) -> PlanSelector:
        """A selector with another precision and the same budget."""
        return replace(self, solver=self.solver.in_precision(precision))

    def on_device(self, device: str) -> PlanSelector:
        """A selector of plans on one device, with the same budget."""
        return replace(self, solver=self.solver.on_device(device))

    def is_faster(self, recipe: Recipe, other: Recipe, tables: Tables) -> bool:
        """Whether a plan is predicted, by the same tables, to be faster than another by enough to be built."""
        return self._promise(recipe, tables) < (1 - self.gain) * self._promise(other, tables)

    def _promise(self, recipe: Recipe, tables: Tables) -> float:
        """Predicted seconds of an inference, or of the first one if the objective is cold."""
        warm = timed_plan(recipe, tables).predicted or 0.0
        if self.policy.objective is not Objective.COLD:
            return warm
        return warm + recipe.needed[Quantity.COLD] - recipe.needed[Quantity.LATENCY]

    def select(self, tables: Tables, limits: Limits) -> Selected:
        """The best plans found within limits and the budget, best first; the most exact plan if none keeps to the
        budget.

        Args:
            tables: with sensitivities.
            limits: further limits; a limit on error is one on the sum of squared errors.

        Returns:
            The plans, and the tables with what was measured for them.

        Raises:
            InfeasibleError: if no plan keeps to ``limits``.
        """
        if self.errors is None or self.errors.is_free:
            return self.solver.within(tables, limits)
        best, tables = self._using_budget(self.errors, tables, limits)
        return (best, tables) if best else self.solver.most_exact(tables)

    def different(self, tables: Tables, limits: Limits, count: int, apart: float, excess: float) -> Selected:
        """The best plans that differ in what costs, as ``PlanSolver.different``, within the last bound on errors."""
        bound = min((limit for limit in (limits.error, self._bound) if limit is not None), default=None)
        return self.solver.different(tables, replace(limits, error=bound), count, apart, excess)

    def overlapped(self, tables: Tables, limits: Limits) -> Selected:
        """Plans for a first inference that reads while it executes, as ``PlanSolver.overlapped``, within the budget.

        Raises:
            InfeasibleError: if there is none within limits and the last bound on errors.
        """
        bound = min((limit for limit in (limits.error, self._bound) if limit is not None), default=None)
        recipes, tables = self.solver.overlapped(tables, replace(limits, error=bound))
        return [recipe for recipe in recipes if self.keeps_budget(recipe, tables)], tables

    def keeps_budget(self, recipe: Recipe, tables: Tables) -> bool:
        """Whether the simulated error of a plan is allowed.

        Raises:
            UsageError, CompileError: as ``Sensitivities.together``.
        """
        if self.errors is None or self.errors.is_free:
            return True
        return self.budget.allows(self.errors.simulate(recipe, tables))

    def _using_budget(self, errors: PlanErrors, tables: Tables, limits: Limits) -> Selected:
        """The fastest plans whose simulated error keeps to the budget; empty if there are none."""
        search, best = BoundSearch(self.budget), list[Recipe]()
        bound = min((limit for limit in (limits.error, self._bound) if limit is not None), default=None)
        for _ in range(_PLAN_ROUNDS):
            try:
                recipes, tables = self.solver.within(tables, replace(limits, error=bound))
            except InfeasibleError:
                if search.bad is None:
                    raise
                break
            tried = _tried(errors, recipes[0], tables, bound)
            if search.add(tried):
                best = _faster(recipes, best)
            bound = search.bound_after(tried)
            if bound is None:
                break
        if search.good is not None:
            self._bound = search.good.bound
        return best, tables

    def fitted(self, tables: Tables, recipe: Recipe, measured: float) -> Tables:
        """The tables corrected by the measured error of a plan; unchanged if it tells nothing, or all plans may run.

        Raises:
            UsageError, CompileError: as ``Sensitivities.together``.
        """
        fitted = tables if self.errors is None else self.errors.with_propagated_fraction(tables, recipe, measured)
        if fitted.propagated_fraction != tables.propagated_fraction:
            # The old bound was in the scale of the old tables.
            self._bound = None
        return fitted

    def pareto(self, tables: Tables, limits: Limits, quantities: tuple[Quantity, Quantity]) -> ParetoFront | None:
        """The front of plans within limits and the budget; None if there is none."""
        try:
            plans, complete = self.plans_on_front(tables, limits, quantities)
        except InfeasibleError as error:
            _LOG.warning("there is no front: %s", error)
            return None
        if not plans:
            _LOG.warning("there is no front: no plan keeps to the limits")
            return None
        points = tuple(ParetoPoint(recipe.plan, recipe.amounts, error) for recipe, error in plans)
        return ParetoFront(*quantities, points, complete)

    def plans_on_front(
        self, tables: Tables, limits: Limits, quantities: tuple[Quantity, Quantity]
    ) -> tuple[Simulated, bool]:
        """The plans within the budget that no other such plan dominates, and whether there are no others.

        Plans of the front that exceed the budget are replaced by the front within a smaller sum.

        Raises:
            InfeasibleError: if no plan keeps to ``limits``.
        """
        if self.errors is None:
            recipes, complete = self.solver.front_within(tables, limits, quantities)
            return _undominated([(recipe, None) for recipe in recipes], quantities), complete
        kept, complete = self._fronts_within_budget(self.errors, tables, limits, quantities)
        return _undominated(kept, quantities), complete

    def _fronts_within_budget(
        self, errors: PlanErrors, tables: Tables, limits: Limits, quantities: tuple[Quantity, Quantity]
    ) -> tuple[list[tuple[Recipe, float]], bool]:
        """All plans within the budget of fronts with decreasing bounds on the sum."""
        kept: list[tuple[Recipe, float]] = []
        bound, complete = self._bound, True
        for done in range(_FRONT_ROUNDS):
            try:
                recipes, is_all = self.solver.front_within(tables, replace(limits, error=bound), quantities)
            except InfeasibleError:
                if not done:
                    raise
                break
            simulated = [(recipe, errors.simulate(recipe, tables)) for recipe in recipes]
            beyond = [pair for pair in simulated if not self.budget.allows(pair[1])]
            kept += [pair for pair in simulated if self.budget.allows(pair[1])]
            complete = complete and is_all and not beyond
            bound = self._sum_without(beyond)
            if bound is None:
                break
            _LOG.info("%d of %d plans of the front exceed the error budget", len(beyond), len(simulated))
        return kept, complete

    def _sum_without(self, beyond: Sequence[tuple[Recipe, float]]) -> float | None:
        """The next bound for the front, low enough to exclude the plans beyond the budget; None if no bound would."""
        sums = [
            self.budget.sum_aimed_at(recipe.needed[Quantity.ERROR], error)
            for recipe, error in beyond
            if math.isfinite(error)
        ]
        return min(sums, default=None)


def _tried(errors: PlanErrors, recipe: Recipe, tables: Tables, bound: float | None) -> TriedPlan:
    """Simulate a plan that was selected under ``bound``."""
    tried = TriedPlan(bound, recipe.needed[Quantity.ERROR], errors.simulate(recipe, tables))
    _LOG.info("a plan within %s has the simulated error %.2g", bound, tried.error)
    return tried


def _undominated(simulated: Sequence[tuple[Recipe, float | None]], quantities: tuple[Quantity, Quantity]) -> Simulated:
    """The plans that no other dominates in the two quantities, sorted by the first."""
    first, second = quantities
    kept: Simulated = []
    for pair in sorted(simulated, key=lambda pair: (pair[0].amounts[first], pair[0].amounts[second])):
        if not kept or pair[0].amounts[second] < kept[-1][0].amounts[second]:
            kept.append(pair)
    return kept


def _faster(recipes: list[Recipe], best: list[Recipe]) -> list[Recipe]:
    return recipes if not best or _seconds(recipes[0]) < _seconds(best[0]) else best


def _seconds(recipe: Recipe) -> float:
    return recipe.plan.predicted or 0.0
