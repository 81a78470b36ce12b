"""Limits on memory and error hold for what was planned: tightened, simulated, and used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.config import CompileConfig
from sartor.errors import InfeasibleError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.planning.simulated_error import PlanErrors
from sartor.planning.tightened_limits import tightened
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.errors.error_sum import squared_error, total
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from tests.importing import ImportedOf
from tests.plugin.planning.plans import PLAN
from tests.plugin.planning.selecting_fakes import CONFIG, FakeTuner, tables_of

Planned = Callable[[Mapping[str, str]], int | None]


def seconds(_: str, descriptor: str) -> float:
    """Stock code takes longest."""
    return 2.0 if descriptor.endswith(".stock") else 1.0


@pytest.fixture(scope="module")
def imported(imported_of: ImportedOf) -> ImportedModel:
    return imported_of("residual")


@pytest.fixture(scope="module")
def tables(imported: ImportedModel) -> Tables:
    """Tables in which all but stock code needs scratch memory."""
    known = tables_of(imported, seconds)
    scratch = {
        (key, each.descriptor): 0 if each.descriptor.endswith(".stock") else 5000
        for key, listed in known.variants.items()
        for each in listed
    }
    return replace(known, scratch=scratch)


def solver_within(imported: ImportedModel, allowed: int, planned: Planned) -> PlanSolver:
    """A solver within a limit if IREE plans what ``planned`` says, given the routine of each layer."""

    def planned_memory(recipe: Recipe) -> int | None:
        return planned({name: variant.descriptor for name, variant in recipe.variants.items()})

    policy = replace(CONFIG, memory_limit=allowed).planning
    return PlanSolver(imported, cast(Tuner, FakeTuner()), policy, silent, planned_memory=planned_memory)


def solve(imported: ImportedModel, tables: Tables, allowed: int, planned: Planned) -> list[Recipe]:
    """The plans within a limit."""
    solver = solver_within(imported, allowed, planned)
    return solver.within(tables, solver.policy.limits)[0]


def test_a_plan_of_which_iree_makes_more_than_the_limit_is_replaced(imported: ImportedModel, tables: Tables) -> None:
    def planned(routines: Mapping[str, str]) -> int:
        return 50_000 if all(name.endswith(".stock") for name in routines.values()) else 200_000

    (best, *_) = solve(imported, tables, 100_000, lambda _: 1)
    assert not any(variant.descriptor.endswith(".stock") for variant in best.variants.values())
    assert best.memory == 1
    (kept, *_) = solve(imported, tables, 100_000, planned)
    assert kept.amounts[Quantity.MEMORY] == 50_000
    assert kept.needed[Quantity.MEMORY] < best.needed[Quantity.MEMORY]


def test_if_no_plan_keeps_to_the_limit_its_run_has_to_tell(imported: ImportedModel, tables: Tables) -> None:
    found = solve(imported, tables, 100_000, lambda _: 200_000)
    assert [each.memory for each in found] == [200_000]


def test_memory_by_the_tables_counts_if_iree_does_not_plan(imported: ImportedModel, tables: Tables) -> None:
    (best, *_) = solve(imported, tables, 100_000, lambda _: None)
    assert best.memory is None
    assert best.amounts[Quantity.MEMORY] == best.needed[Quantity.MEMORY] <= 100_000


def test_without_a_limit_iree_is_not_asked(imported: ImportedModel, tables: Tables) -> None:
    def planned_memory(_: Recipe) -> int:
        raise AssertionError("nothing has to be planned")

    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), CONFIG.planning, silent, planned_memory=planned_memory)
    assert solver.within(tables, Limits())[0][0].memory is None


@pytest.mark.parametrize("quantities", [(Quantity.LATENCY, Quantity.MEMORY), (Quantity.LATENCY, Quantity.COLD)])
def test_no_point_of_a_front_needs_more_than_the_limit_by_iree(
    imported: ImportedModel, tables: Tables, quantities: tuple[Quantity, Quantity]
) -> None:
    def planned(routines: Mapping[str, str]) -> int:
        return 50_000 if any(name.endswith(".stock") for name in routines.values()) else 200_000

    solver = solver_within(imported, 100_000, planned)
    found, complete = solver.front_within(tables, solver.policy.limits, quantities)
    assert all(each.amounts[Quantity.MEMORY] == 50_000 for each in found)
    assert not complete
    every, _ = solver_within(imported, 100_000, lambda _: 1).front_within(tables, solver.policy.limits, quantities)
    assert len(every) == len(found) + 1


RECIPE = Recipe(PLAN, LayerGraph((), (), ()), {}, {Quantity.MEMORY: 1000.0, Quantity.ERROR: squared_error(4e-5)})


def run(status: Status, **known: Any) -> Measurement:
    key = MeasurementKey("net", "plan", "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, status, (1.0,) if status is Status.OK else (), **known)


def tighter(limits: Limits, measured: Measurement | None, config: CompileConfig) -> Limits | None:
    return tightened(limits, RECIPE, measured, config.memory_limit, config.error_budget)


def test_what_kept_to_the_limits_needs_no_others() -> None:
    config = CompileConfig(memory_limit=1000)
    assert tighter(config.planning.limits, run(Status.OK, packed_bytes=1000), config) is None
    assert tighter(config.planning.limits, run(Status.CRASHED), config) is None
    assert tighter(config.planning.limits, None, config) is None
    assert tighter(UNLIMITED, run(Status.OK, packed_bytes=9999), CompileConfig()) is None


def test_memory_beyond_the_limit_comes_off_what_was_predicted() -> None:
    config = CompileConfig(memory_limit=1000)
    assert tighter(config.planning.limits, run(Status.OK, packed_bytes=1030), config) == Limits(memory=970.0)
    assert tighter(config.planning.limits, run(Status.OK, packed_bytes=5000), config) == Limits(memory=0.0)


def test_an_error_beyond_the_limit_scales_the_budget() -> None:
    config = CompileConfig(max_error=1e-6)
    found = tighter(Limits(memory=5.0), run(Status.WRONG_RESULT, error=2e-6), config)
    assert found is not None
    assert found.memory == 5.0
    assert found.error is not None
    assert total(found.error) == pytest.approx(0.5 * 4e-5, rel=0.3)
    assert total(found.error) < 0.5 * 4e-5
    assert tighter(UNLIMITED, run(Status.WRONG_RESULT, error=math.inf), config) is None


def test_constraints_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 bytes"):
        CompileConfig(memory_limit=-1)
    with pytest.raises(UsageError, match="two different ones of"):
        CompileConfig(pareto=(Quantity.MEMORY, Quantity.MEMORY))
    with pytest.raises(UsageError, match="choose auto or ilp"):
        CompileConfig(selector="greedy", memory_limit=1)
    config = CompileConfig(objective=Objective.COLD, memory_limit=1, pareto=(Quantity.ERROR, Quantity.LATENCY))
    # Weights in a second form are bounded by what plans have without them, and never by users.
    assert config.planning.quantities == tuple(quantity for quantity in Quantity if quantity != Quantity.REPEATED)


TABLES = Tables({}, {})
ALLOWED = 1e-2


@dataclass
class Solver:
    """A network of which any share may be narrow: the larger the sum of errors, the less time it takes.

    Attributes:
        most: sum of the fastest plan.
        least: sum of the most exact one.
        bounds: under which plans were asked for.
    """

    most: float = 1e-4
    least: float = 0.0
    bounds: list[float | None] = field(default_factory=list)

    def within(self, tables: Tables, limits: Limits) -> tuple[list[Recipe], Tables]:
        self.bounds.append(limits.error)
        needed = self.most if limits.error is None else min(limits.error * 0.98, self.most)
        if needed < self.least:
            raise InfeasibleError("nothing is left")
        return [self._recipe(needed)], tables

    def most_exact(self, tables: Tables) -> tuple[list[Recipe], Tables]:
        return [self._recipe(self.least)], tables

    def _recipe(self, needed: float) -> Recipe:
        plan = replace(PLAN, predicted=1.0 - needed)
        return Recipe(plan, LayerGraph((), (), ()), {}, {Quantity.ERROR: needed})


def budget(simulate: Callable[[float], float], measure: ErrorMeasure = RELATIVE) -> PlanSelector:
    """Return a selector whose plans have the errors that ``simulate`` returns; ``select`` sets its solver."""
    allowed = ErrorBudget(measure, ALLOWED)
    errors = PlanErrors(allowed, lambda recipe, tables: simulate(recipe.needed[Quantity.ERROR]))
    return PlanSelector(cast(PlanSolver, Solver()), allowed, errors)


def select(found: PlanSelector, solver: Solver, limits: Limits = UNLIMITED) -> float:
    found.solver = cast(PlanSolver, solver)
    recipes, _ = found.select(TABLES, limits)
    return float(recipes[0].needed[Quantity.ERROR])


@pytest.mark.parametrize("factor", [0.1, 0.9])
def test_a_plan_within_the_budget_is_not_bounded(factor: float) -> None:
    solver = Solver(most=ALLOWED**2)
    assert select(budget(lambda needed: factor * needed**0.5), solver) == solver.most
    assert solver.bounds == [None]


@pytest.mark.parametrize("factor", [1.2, 3.0, 50.0])
@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0])
def test_the_budget_is_kept_and_used_whatever_the_model_of_errors(factor: float, exponent: float) -> None:
    def simulate(needed: float) -> float:
        return float(factor * ALLOWED * (needed / solver.most) ** exponent)

    solver = Solver()
    assert 0.8 * ALLOWED <= simulate(select(budget(simulate), solver)) <= ALLOWED
    assert len(solver.bounds) <= 6


def test_one_correction_is_enough_where_the_model_holds() -> None:
    solver = Solver()
    select(budget(lambda needed: 4 * needed**0.5), solver)
    assert len(solver.bounds) == 2
    solver = Solver()
    select(budget(lambda needed: 400 * needed, ErrorMeasure.parse("cosine")), solver)
    assert len(solver.bounds) == 2


def test_what_was_learned_is_where_the_next_selection_begins() -> None:
    found, solver = budget(lambda needed: 4 * needed**0.5), Solver()
    first = select(found, solver)
    assert select(found, solver) == pytest.approx(first)
    assert len(solver.bounds) == 3


def test_tighter_limits_are_kept() -> None:
    assert select(budget(lambda needed: needed**0.5), Solver(), Limits(error=1e-6)) <= 1e-6


def test_where_nothing_keeps_it_the_most_exact_plan_is_left() -> None:
    solver = Solver(least=5e-5)
    assert select(budget(lambda needed: 100 * needed**0.5), solver) == solver.least
    with pytest.raises(InfeasibleError):
        select(budget(lambda needed: 0.0), Solver(least=1.0))


def test_errors_that_no_sum_explains_end() -> None:
    solver = Solver()
    assert select(budget(lambda needed: 1.0), solver) == solver.least
    assert len(solver.bounds) <= 8
