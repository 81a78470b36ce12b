"""Finds plans by cost tables; conversions are measured when plans need them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.adapts import AdaptKind
from sartor.errors import InfeasibleError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe, split_recipe, timed_plan
from sartor.planning.second_forms import bounded
from sartor.planning.shared_weights import WeightSharing
from sartor.policies import PlanPolicy, Precision
from sartor.precision.eligibility import IsEligible, eligibility
from sartor.progress import Progress
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, adapt_case
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection import auto
from sartor.tuning.selection.overlap.queues import queues_of
from sartor.tuning.selection.overlap.shortest import Overlapped, fastest, shortest
from sartor.tuning.selection.problem.limits import Limits, Quantity, measures
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, conclude
from sartor.tuning.selection.programming import ilp, least_memory
from sartor.tuning.selection.programming.alternatives import alternatives
from sartor.tuning.selection.programming.pareto import Point, pareto_front
from sartor.tuning.selection.solve import solve
from sartor.tuning.transfers.conversions import adapts_between, moving_adapts

# Largest number of rounds in which missing conversions are measured and the plan is solved again.
_CONVERSION_ROUNDS = 12
# Time limit of finding plans that differ, which is a gain and no need.
_DIFFERENT_SECONDS = 10.0
# Largest number of selections whose memory IREE plans, each with another limit by the tables.
_MEMORY_ROUNDS = 6
_LOG = logging.getLogger(__name__)


Selected = tuple[list[Recipe], Tables]
"""Plans, best first, and the tables with conversions that were measured for them."""


class Conversions(Protocol):
    """Finds times of conversions on one device; a tuner measures them."""

    @property
    def target(self) -> Target:
        """The device."""

    @property
    def is_late(self) -> bool:
        """Whether there is no time to find more."""

    def is_quiet(self) -> bool:
        """Whether other programs leave the machine alone."""

    def measure(self, cases: Iterable[BenchmarkCase]) -> dict[str, dict[str, Measurement]]:
        """Measurements by case key and descriptor, of earlier compilations too; a case is listed for each use."""

    def measure_anew(self, cases: Iterable[BenchmarkCase]) -> None:
        """Measure what was measured before."""


@dataclass(frozen=True)
class PlanSolver:
    """Finds plans of one model within limits; it does not check the error of several layers together.

    Attributes:
        imported: the model.
        tuner: measures conversions.
        policy: objective and constraints.
        progress: told about every round.
        others: measure conversions on further devices.
        planned_memory: finds the bytes that IREE plans for a recipe, None if it does not say; without it, and for what
            it does not say, memory by the tables counts.
        forms: in which another plan of the file reads weights, by their names.
    """

    imported: ImportedModel
    tuner: Conversions
    policy: PlanPolicy
    progress: Progress
    others: tuple[Conversions, ...] = ()
    planned_memory: Callable[[Recipe], int | None] | None = None
    forms: Mapping[str, Packing] = field(default_factory=dict)

    @property
    def is_late(self) -> bool:
        """Whether there is no time to measure more."""
        return any(tuner.is_late for tuner in (self.tuner, *self.others))

    def in_precision(self, precision: Precision) -> PlanSolver:
        """A solver of plans within another precision."""
        return replace(self, policy=replace(self.policy, precision=precision))

    def on_device(self, device: str) -> PlanSolver:
        """A solver of plans on one device."""
        pins = (*self.policy.pins, Pin("*", f"{device}:*"))
        return replace(self, policy=replace(self.policy, pins=pins))

    def within(self, tables: Tables, limits: Limits) -> Selected:
        """The best plans within limits, of which the user's on memory holds for what IREE plans.

        Raises:
            InfeasibleError: if there is none.
        """
        allowed = self.policy.limits.memory
        if self.planned_memory is None or allowed is None or limits.memory is None:
            return self._by_tables(tables, limits)
        bound, empty, too_large = limits.memory, 0.0, math.inf
        planned: list[Recipe] = []
        for _ in range(_MEMORY_ROUNDS):
            try:
                recipes, tables = self._by_tables(tables, replace(limits, memory=bound))
            except InfeasibleError:
                if not planned:
                    raise
                empty = bound
            else:
                planned = [self._with_memory(recipe) for recipe in recipes]
                fitting = [recipe for recipe in planned if recipe.amounts[Quantity.MEMORY] <= allowed]
                if fitting:
                    return fitting, tables
                too_large = planned[0].needed[Quantity.MEMORY]
            # A plan near the last one probably exceeds the limit by as much.
            near = too_large - (planned[0].amounts[Quantity.MEMORY] - allowed)
            bound = near if near > empty else (empty + too_large) / 2
            _LOG.info("IREE plans more memory than the limit; the next plan is within %.0f bytes by the tables", bound)
        return planned, tables

    def _with_memory(self, recipe: Recipe) -> Recipe:
        """The recipe with the memory that IREE plans for it, if that is known."""
        return recipe if self.planned_memory is None else replace(recipe, memory=self.planned_memory(recipe))

    def _by_tables(self, tables: Tables, limits: Limits) -> Selected:
        """The best plans within limits by the tables.

        Raises:
            InfeasibleError: if there is none.
        """

        def find(problem: Problem) -> Sequence[Selection]:
            return solve(problem, self.policy.selector, limits=bounded(problem, self.policy.selector, limits))

        return self._settled(tables, find, tuple(limits.bounds))

    def different(self, tables: Tables, limits: Limits, count: int, apart: float, excess: float) -> Selected:
        """The best plans within limits that differ in what costs, as ``alternatives``; few if that takes long."""
        left = _DIFFERENT_SECONDS

        def find(problem: Problem) -> Sequence[Selection]:
            # Conversions are measured between the calls, which must not leave the next one without time.
            nonlocal left
            begin = perf_counter()
            within = bounded(problem, self.policy.selector, limits)
            selections = alternatives(problem, count, apart, within, excess=excess, seconds=left)
            left = max(left - (perf_counter() - begin), 0.0)
            return selections

        return self._settled(tables, find, tuple(limits.bounds), keep=count)

    def smallest(self, tables: Tables) -> Selected:
        """The plan that needs the least memory: it may keep to a limit when it runs, even if none does by the tables.

        Raises:
            InfeasibleError: if no plan exists.
        """
        return self._settled(tables, lambda problem: [least_memory.smallest(problem, seconds=auto.SECONDS)], ())

    def most_exact(self, tables: Tables) -> Selected:
        """The plan with the least sum of squared errors by the tables, within the user's limits.

        Raises:
            InfeasibleError: if no plan exists.
        """

        def find(problem: Problem) -> Sequence[Selection]:
            return [least_memory.most_exact(problem, self.policy.limits, seconds=auto.SECONDS)]

        return self._settled(tables, find, (Quantity.ERROR, *self.policy.limits.bounds))

    def front_within(
        self, tables: Tables, limits: Limits, quantities: tuple[Quantity, Quantity]
    ) -> tuple[list[Recipe], bool]:
        """The Pareto front of two quantities within limits, and whether it is complete.

        Of plans that need more memory by IREE's own plan than the user allows none is a point, and another might be.

        Raises:
            InfeasibleError: if there is none.
        """
        complete = True

        def find(problem: Problem) -> Sequence[Selection]:
            nonlocal complete
            front = pareto_front(
                problem, *quantities, bounded(problem, self.policy.selector, limits), seconds=auto.SECONDS
            )
            complete = front.complete
            return [_selection(problem, point) for point in front.points]

        recipes, _ = self._settled(tables, find, tuple(limits.bounds))
        allowed = self.policy.limits.memory
        if Quantity.MEMORY in quantities or allowed is not None:
            recipes = [self._with_memory(recipe) for recipe in recipes]
        fitting = [recipe for recipe in recipes if allowed is None or recipe.amounts[Quantity.MEMORY] <= allowed]
        return fitting, complete and len(fitting) == len(recipes)

    def overlapped(self, tables: Tables, limits: Limits) -> Selected:
        """Plans for a first inference that reads while it executes: the shortest, and the one that executes fastest.

        Raises:
            InfeasibleError: if there is none within limits.
        """

        def find(problem: Problem) -> Sequence[Selection]:
            return [_overlapping(problem, solver(problem, limits, auto.SECONDS)) for solver in (shortest, fastest)]

        return self._settled(tables, find, tuple(limits.bounds))

    def _settled(
        self,
        tables: Tables,
        find: Callable[[Problem], Sequence[Selection]],
        bounded: tuple[Quantity, ...],
        keep: int = 1,
    ) -> Selected:
        """Plans whose conversions are all measured, or the last ones after too many rounds.

        Args:
            tables: costs.
            find: solver.
            bounded: quantities that are limited.
            keep: largest number of plans that may differ in choices of equal schemas.
        """
        device, graph = self.policy.target.device, self.imported.graph
        quantities = (*self.policy.quantities, *bounded, Quantity.REPEATED)
        may_run = eligibility(self.imported, self.policy.precision)
        for done in range(_CONVERSION_ROUNDS):
            self.progress("selecting", done, _CONVERSION_ROUNDS)
            problem = selection_problem(
                graph, tables, device, self.policy.objective, self.policy.pins, quantities, may_run, keep
            )
            sharing = self._sharing(tables, may_run)
            recipes = [self._recipe(problem, selection, tables, sharing) for selection in find(problem)]
            kinds = [kind for recipe in recipes for _, kind in adapts_between(recipe.graph, recipe.variants, device)]
            wanted = [kind for kind in moving_adapts(kinds) if kind not in tables.adapts]
            known, tables = tables, self._with_adapts(tables, wanted) if wanted else tables
            if len(tables.adapts) == len(known.adapts):
                break
        return [replace(recipe, plan=timed_plan(recipe, tables)) for recipe in recipes], tables

    def _sharing(self, tables: Tables, may_run: IsEligible) -> WeightSharing:
        pins = self.policy.pins

        def allows(name: str, layer: Layer, variant: Variant) -> bool:
            return may_run(layer, variant) and all(pin.allows(name, variant.descriptor) for pin in pins)

        return WeightSharing(self.imported.graph, tables, allows, self.policy.limits, self.forms)

    def _recipe(self, problem: Problem, selection: Selection, tables: Tables, sharing: WeightSharing) -> Recipe:
        problem, plan = sharing.shared(problem, selection.assignment)
        recipe = split_recipe(self.imported, tables, replace(selection, assignment=plan), self.policy)
        return replace(recipe, needed=measures(problem, plan), overlapped=queues_of(problem, plan).seconds)

    def _tuner_of(self, device: str) -> Conversions:
        return next((other for other in self.others if other.target.device == device), self.tuner)

    def _with_adapts(self, tables: Tables, wanted: Sequence[AdaptKind]) -> Tables:
        cases = {kind: adapt_case(kind, self.imported.graph.calls) for kind in wanted}
        measured: dict[str, Mapping[str, Measurement]] = {}
        for device in sorted({kind.target.device for kind in cases}):
            own = [cases[kind] for kind in wanted if kind.target.device == device]
            measured |= _undisturbed(self._tuner_of(device), own)
        adapts = dict(tables.adapts)
        for kind, case in cases.items():
            measurement = measured[case.key].get(case.variants[0].descriptor)
            if measurement is None and self.is_late:
                continue
            adapts[kind] = _seconds(kind, measurement)
        return replace(tables, adapts=adapts)


def _undisturbed(tuner: Conversions, cases: Sequence[BenchmarkCase]) -> dict[str, dict[str, Measurement]]:
    """Measurements of conversions; those beside which other programs computed are made again, once it is quiet."""
    times = tuner.measure(cases)
    distinct = {case.key: case for case in cases}.values()
    disturbed = [case for case in distinct if any(measurement.foreign_load for measurement in times[case.key].values())]
    if not disturbed or tuner.is_late or not tuner.is_quiet():
        return times
    tuner.measure_anew(disturbed)
    return {**times, **tuner.measure(disturbed)}


def _seconds(kind: AdaptKind, measurement: Measurement | None) -> float:
    """Seconds of a conversion; infinite if it does not work, so that plans avoid it."""
    if measurement is not None and measurement.status is Status.OK:
        return measurement.time
    why = "it was not measured" if measurement is None else measurement.message
    _LOG.warning("converting %s from %s to %s does not work: %s", kind.tensor, kind.source, kind.target, why)
    return math.inf


def _overlapping(problem: Problem, overlapped: Overlapped) -> Selection:
    """Its cost is the problem's objective, which is a sum; what it is proven to be the best in is another."""
    return replace(
        conclude(problem, overlapped.plan, bound=None, solver=ilp.NAME, seconds=0.0),
        lower_bound=0.0,
        optimal=overlapped.proven,
    )


def _selection(problem: Problem, point: Point) -> Selection:
    selected = conclude(problem, point.plan, bound=None, solver=ilp.NAME, seconds=0.0)
    return replace(selected, optimal=point.proven)
