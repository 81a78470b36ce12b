"""Tightens limits after a plan that keeps to them by the tables exceeded them when it ran.

The tables contain the errors of single layers, and the least memory of a memory planner. The error of the whole
network, and the memory that IREE allocates, are known only after a run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import Selected
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import Limits, Quantity

_LOG = logging.getLogger(__name__)


def tightened(
    limits: Limits, recipe: Recipe, run: Measurement | None, memory_limit: float | None, budget: ErrorBudget
) -> Limits | None:
    """Limits under which a plan is selected that may keep to the user's limits when it runs; None if this plan did.

    None also if no limit would help: the plan crashed, or its layers are as exact as candidate 0.

    Args:
        limits: under which the plan was selected.
        recipe: the plan.
        run: its run; None if it did not run.
        memory_limit: the user's limit in bytes, or None.
        budget: the error budget.
    """
    if run is None or recipe.plan.unsplit:
        return None
    if run.status is Status.WRONG_RESULT:
        return _more_exact(limits, recipe, run, budget)
    if run.status is Status.OK and memory_limit is not None and run.packed_bytes > memory_limit:
        excess = run.packed_bytes - memory_limit
        return replace(limits, memory=max(recipe.needed[Quantity.MEMORY] - excess, 0.0))
    return None


def _more_exact(limits: Limits, recipe: Recipe, run: Measurement, budget: ErrorBudget) -> Limits | None:
    estimated = recipe.needed.get(Quantity.ERROR, 0.0)
    if not estimated or run.error is None or not math.isfinite(run.error):
        return None
    return replace(limits, error=budget.sum_after_run(estimated, run.error))


@dataclass(frozen=True)
class Reselected:
    """The plan, limits and tables after a run.

    Attributes:
        recipe: the plan to run next; None if the plan that ran is kept.
        limits: the limits for further plans.
        tables: the tables corrected by the run.
    """

    recipe: Recipe | None
    limits: Limits
    tables: Tables


@dataclass(frozen=True)
class LimitKeeper:
    """Selects again after a run that exceeded the limits, or showed that faster plans may keep to them.

    Attributes:
        selector: selects plans.
    """

    selector: PlanSelector

    def after(
        self,
        newest: Recipe,
        run: Measurement | None,
        known: Reselected,
        tried: Sequence[Recipe],
        *,
        learns: bool,
    ) -> Reselected:
        """Tighten or correct limits and tables by a run, and select again if necessary.

        Args:
            newest: the plan that ran.
            run: its run; None if it did not run.
            known: the tables and limits by which it was selected.
            tried: all plans that ran, which are not proposed again.
            learns: whether there is time to correct the tables by the run's error.
        """
        limits = known.limits
        tables = self._learned(known.tables, newest, run) if learns else known.tables
        if tables.propagated_fraction != known.tables.propagated_fraction:
            # The old bound was in the scale of the old tables.
            limits = replace(limits, error=self.selector.policy.limits.error)
        again = self._again(known.tables, tables, newest, run, limits)
        if again.recipe is None or any(again.recipe.is_same_as(recipe) for recipe in tried):
            return Reselected(None, limits, again.tables)
        _LOG.info("selected again by the plan's run, under limits of %s", dict(again.limits.bounds))
        return again

    def _again(
        self, before: Tables, tables: Tables, newest: Recipe, run: Measurement | None, limits: Limits
    ) -> Reselected:
        """A plan to run after one that exceeded limits, or showed that faster ones may keep to them, with its limits.

        Args:
            before: tables by which the last plan was selected.
            tables: tables corrected by its run.
            newest: the last plan.
            run: its run.
            limits: limits in the scale of ``tables``.
        """
        is_wrong = run is not None and run.status is Status.WRONG_RESULT
        tighter = self._tightened(limits, newest, run)
        if tables.propagated_fraction != before.propagated_fraction and (
            is_wrong or tables.propagated_fraction < before.propagated_fraction
        ):
            bounds = replace(tighter or limits, error=limits.error)
            selected, tables = self._within(tables, bounds)
            if not (is_wrong and selected and selected[0].is_same_as(newest)):
                is_better = selected and (is_wrong or tighter or self.selector.is_faster(selected[0], newest, tables))
                return Reselected(selected[0] if is_better else None, bounds, tables)
            # The corrected tables do not exclude it; these are its sums by them.
            newest, tighter = selected[0], self._tightened(bounds, selected[0], run)
        if tighter is None:
            return Reselected(None, limits, tables)
        selected, tables = self._within(tables, tighter)
        return Reselected(selected[0] if selected else None, tighter, tables)

    def _tightened(self, limits: Limits, recipe: Recipe, run: Measurement | None) -> Limits | None:
        return tightened(limits, recipe, run, self.selector.policy.limits.memory, self.selector.budget)

    def _within(self, tables: Tables, limits: Limits) -> Selected:
        """The plans within limits, or the last resort."""
        try:
            return self.selector.select(tables, limits)
        except InfeasibleError:
            return self._last_resort(tables, limits), tables

    def _learned(self, tables: Tables, recipe: Recipe, run: Measurement | None) -> Tables:
        """The tables corrected by a plan's measured error; unchanged if it tells nothing."""
        if run is None or run.error is None or recipe.plan.unsplit:
            return tables
        return self.selector.fitted(tables, recipe, run.error)

    def _last_resort(self, tables: Tables, tighter: Limits) -> list[Recipe]:
        """The smallest or the most exact plan by the tables, if no plan keeps to tighter limits."""
        if tighter.memory is not None:
            return self.selector.solver.smallest(tables)[0]
        return [] if tighter.error is None else self.selector.solver.most_exact(tables)[0]
