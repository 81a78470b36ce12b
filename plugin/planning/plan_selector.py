"""Selecting plans by cost tables; conversions are measured as plans ask for them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sartor.artifact import FrontPoint, PlanFront
from sartor.codegen.linking.adapts import AdaptKind
from sartor.config import CompileConfig
from sartor.errors import InfeasibleError
from sartor.frontend.imported_model import Front
from sartor.planning.error_budget import ErrorBudget
from sartor.planning.pareto_budget import front_within
from sartor.planning.recipe import Recipe, split_recipe, timed_plan
from sartor.precision.eligibility import permits
from sartor.progress import Progress
from sartor.tuning.cost_tables.conversions import adapts_between, units_of
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.benchmark_case import adapt_unit
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.limits import Limits, Quantity, measures
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, conclude
from sartor.tuning.selection.programming import ilp, least_error, least_memory
from sartor.tuning.selection.programming.pareto import Point, pareto_front
from sartor.tuning.selection.solve import solve

_ROUNDS = 12
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanSelector:
    """Selects plans of one model.

    Attributes:
        front: the model.
        tuner: measures conversions.
        config: settings.
        progress: told about every round.
        budget: what plans of lower precision may err by; None where none is lower.
    """

    front: Front
    tuner: Tuner
    config: CompileConfig
    progress: Progress
    budget: ErrorBudget | None = None

    def select(self, tables: Tables, limits: Limits) -> tuple[list[Recipe], Tables]:
        """The best plans within limits and the budget, best first, and the tables with what was measured for them.

        Raises:
            InfeasibleError: if there is none within the limits.
        """
        if self.budget is None:
            return self._within(tables, limits)
        return self.budget.select(tables, limits, self._within, self.most_exact)

    def _within(self, tables: Tables, limits: Limits) -> tuple[list[Recipe], Tables]:
        def find(problem: Problem) -> Sequence[Selection]:
            return solve(problem, self.config.selector, self.config.plans, limits)

        return self._settled(tables, find, tuple(limits.bounds))

    def smallest(self, tables: Tables) -> tuple[list[Recipe], Tables]:
        """The plan that needs least memory: where none keeps to the limit by the tables, it may when it runs.

        Raises:
            InfeasibleError: if no plan exists.
        """
        return self._settled(tables, lambda problem: [least_memory.smallest(problem, seconds=auto.SECONDS)], ())

    def most_exact(self, tables: Tables) -> tuple[list[Recipe], Tables]:
        """The plan whose layers err least by the tables, within the user's limits.

        Raises:
            InfeasibleError: if no plan exists.
        """

        def find(problem: Problem) -> Sequence[Selection]:
            return [least_error.most_exact(problem, self.config.limits, seconds=auto.SECONDS)]

        return self._settled(tables, find, (Quantity.ERROR, *self.config.limits.bounds))

    def pareto(self, tables: Tables) -> PlanFront | None:
        """The front that the user asked for, if any, within the user's limits and the budget."""
        quantities = self.config.pareto
        if quantities is None:
            return None
        try:
            found, complete = self._front(tables, quantities)
        except InfeasibleError as error:
            _LOG.warning("there is no front: %s", error)
            return None
        if not found:
            _LOG.warning("there is no front: no plan was found that errs by no more than is allowed")
            return None
        points = tuple(FrontPoint(each.plan, each.needed, error) for each, error in found)
        return PlanFront(*quantities, points, complete)

    def _front(
        self, tables: Tables, quantities: tuple[Quantity, Quantity]
    ) -> tuple[list[tuple[Recipe, float | None]], bool]:
        """Plans with what they err by in simulation, if they round, and whether there are no others."""

        def find(limits: Limits) -> tuple[list[Recipe], bool]:
            return self._front_within(tables, quantities, limits)

        if self.budget is None:
            recipes, complete = find(self.config.limits)
            return [(each, None) for each in recipes], complete
        judged, complete = front_within(self.budget, tables, self.config.limits, quantities, find)
        return [*judged], complete

    def _front_within(
        self, tables: Tables, quantities: tuple[Quantity, Quantity], limits: Limits
    ) -> tuple[list[Recipe], bool]:
        complete = True

        def find(problem: Problem) -> Sequence[Selection]:
            nonlocal complete
            found = pareto_front(problem, *quantities, limits, seconds=auto.SECONDS)
            complete = found.complete
            return [_selection(problem, point) for point in found.points]

        recipes, _ = self._settled(tables, find, tuple(limits.bounds))
        return recipes, complete

    def _settled(
        self, tables: Tables, find: Callable[[Problem], Sequence[Selection]], bounded: tuple[Quantity, ...]
    ) -> tuple[list[Recipe], Tables]:
        """Plans that ask for no conversion that was not measured, or the last ones if too many do."""
        device, graph = self.config.target.device, self.front.graph
        quantities = (*self.config.quantities, *bounded)
        may_run = permits(self.front, self.config)
        for done in range(_ROUNDS):
            self.progress("selecting", done, _ROUNDS)
            problem = selection_problem(
                graph, tables, device, self.config.objective, self.config.pins, quantities, may_run
            )
            recipes = [self._recipe(problem, each, tables) for each in find(problem)]
            kinds = [kind for each in recipes for _, kind in adapts_between(each.graph, each.variants, device)]
            wanted = units_of(kind for kind in kinds if kind not in tables.adapts)
            if not wanted or self.tuner.is_late:
                break
            tables = self._with_adapts(tables, wanted)
        return [replace(each, plan=timed_plan(each, tables)) for each in recipes], tables

    def _recipe(self, problem: Problem, selection: Selection, tables: Tables) -> Recipe:
        recipe = split_recipe(self.front, tables, selection, self.config)
        return replace(recipe, needed=measures(problem, selection.assignment))

    def _with_adapts(self, tables: Tables, wanted: Sequence[AdaptKind]) -> Tables:
        units = {kind: adapt_unit(kind) for kind in wanted}
        measured = self.tuner.measure(units.values())
        adapts = dict(tables.adapts)
        for kind, unit in units.items():
            measurement = measured[unit.key].get(unit.variants[0].descriptor)
            if measurement is None and self.tuner.is_late:
                continue
            adapts[kind] = _seconds(kind, measurement)
        return replace(tables, adapts=adapts)


def _seconds(kind: AdaptKind, measurement: Measurement | None) -> float:
    """What a conversion takes; infinitely long if it does not work, so that plans do without it."""
    if measurement is not None and measurement.status is Status.OK:
        return measurement.time
    why = "it was not measured" if measurement is None else measurement.message
    _LOG.warning("converting %s from %s to %s does not work: %s", kind.tensor, kind.source, kind.target, why)
    return math.inf


def _selection(problem: Problem, point: Point) -> Selection:
    found = conclude(problem, point.plan, bound=None, solver=ilp.NAME, seconds=0.0)
    return replace(found, optimal=point.proven)
