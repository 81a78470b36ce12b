"""Limits on memory hold for what IREE plans, which differs from the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from sartor.codegen.ir.target import Target
from sartor.errors import CompileError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning import plan_solver
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.networks.build_job import SplitNetwork
from sartor.tuning.selection.problem.limits import Limits, Quantity
from sartor.tuning.workers.pool import WorkerPool
from tests.plugin.planning.selecting_fakes import CONFIG, FakeTuner, ImportedOf, tables_of

Planned = Callable[[Mapping[str, str]], int]


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


def solve(
    imported: ImportedModel, tables: Tables, allowed: int, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> list[Recipe]:
    """The plans within a limit if IREE plans what ``planned`` says, given the routine of each layer."""

    def call(pool: WorkerPool, function: object, arguments: Mapping[str, Any], step: str) -> int:
        net = cast(SplitNetwork, arguments["net"])
        assert isinstance(arguments["target"], Target)
        return planned({name: each.descriptor for name, each in net.variants.items()})

    monkeypatch.setattr(plan_solver, "call", call)
    policy = replace(CONFIG, memory_limit=allowed).planning
    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), policy, silent, pool=cast(WorkerPool, object()))
    return solver.within(tables, policy.limits)[0]


def test_a_plan_of_which_iree_makes_more_than_the_limit_is_replaced(
    imported: ImportedModel, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(routines: Mapping[str, str]) -> int:
        return 50_000 if all(name.endswith(".stock") for name in routines.values()) else 200_000

    (best, *_) = solve(imported, tables, 100_000, lambda _: 1, monkeypatch)
    assert not any(each.descriptor.endswith(".stock") for each in best.variants.values())
    assert best.memory == 1
    (kept, *_) = solve(imported, tables, 100_000, planned, monkeypatch)
    assert kept.amounts[Quantity.MEMORY] == 50_000
    assert kept.needed[Quantity.MEMORY] < best.needed[Quantity.MEMORY]


def test_if_no_plan_keeps_to_the_limit_its_run_has_to_tell(
    imported: ImportedModel, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = solve(imported, tables, 100_000, lambda _: 200_000, monkeypatch)
    assert [each.memory for each in found] == [200_000]


def test_memory_by_the_tables_counts_if_iree_does_not_plan(
    imported: ImportedModel, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(_: Mapping[str, str]) -> int:
        raise CompileError("planning the memory of a network failed")

    (best, *_) = solve(imported, tables, 100_000, planned, monkeypatch)
    assert best.memory is None
    assert best.amounts[Quantity.MEMORY] == best.needed[Quantity.MEMORY] <= 100_000


def test_without_a_limit_iree_is_not_asked(
    imported: ImportedModel, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(*_: object) -> int:
        raise AssertionError("nothing has to be planned")

    monkeypatch.setattr(plan_solver, "call", call)
    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), CONFIG.planning, silent, pool=cast(WorkerPool, object()))
    assert solver.within(tables, Limits())[0][0].memory is None
