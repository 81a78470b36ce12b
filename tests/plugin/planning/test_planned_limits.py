"""Limits on memory hold for what IREE plans, which differs from the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import pytest

from sartor.frontend.imported_model import ImportedModel
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.selection.problem.limits import Limits, Quantity
from tests.importing import ImportedOf
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
