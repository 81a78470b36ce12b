"""The plan for the CPU alone, which runs beside one for two devices."""

from __future__ import annotations

from typing import cast

import pytest

from sartor.planning.contenders.one_device_plans import home_plans
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.progress import silent
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.selection.problem.limits import Limits
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner
from tests.plugin.planning.two_devices import CONFIG, tables, transfers


@pytest.mark.parametrize(("seconds", "expected"), [(1e-5, [("cpu",)]), (1e-2, [])])
def test_the_best_plan_on_the_cpu_runs_beside_a_mixed_one(
    imported_of: ImportedOf, seconds: float, expected: list[tuple[str, ...]]
) -> None:
    imported = imported_of("lenet")
    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), CONFIG.planning, silent)
    selector = PlanSelector(solver, CONFIG.error_budget)
    costs = tables(imported, transfers(seconds, seconds))
    selected, costs = selector.select(costs, Limits())
    found, _ = home_plans(selector, costs, selected, Limits())
    assert [each.devices for each in found] == expected
