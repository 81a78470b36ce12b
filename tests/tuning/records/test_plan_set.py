"""The plans of a file with several: written, read back, and refused when they are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet, ShapedPlan, load_plans
from tests.tuning.records.test_plan import PLAN

SET = PlanSet((ShapedPlan({"x": (1, 3)}, PLAN), ShapedPlan({"x": (8, 3)}, PLAN)))


def test_plans_come_back_as_they_were(tmp_path: Path) -> None:
    SET.save(tmp_path / "plans.json")
    assert load_plans(tmp_path / "plans.json") == SET


def test_one_plan_is_read_as_such(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.json")
    assert load_plans(tmp_path / "plan.json") == PLAN


def test_several_plans_are_not_taken_for_one(tmp_path: Path) -> None:
    SET.save(tmp_path / "plans.json")
    with pytest.raises(UsageError, match="holds the plans of a file with several"):
        Plan.load(tmp_path / "plans.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"plans": [], "format": 1}, "holds no plans"),
        ({"plans": [{"shapes": {"x": [1]}}], "format": 1}, "Field required at plans.0.plan"),
        ({"plans": [], "format": 99}, "format 99, this version reads 1"),
        ({"plans": [], "format": 1, "more": 0}, "more"),
    ],
)
def test_what_is_no_set_of_plans_is_refused(tmp_path: Path, data: object, said: str) -> None:
    (tmp_path / "plans.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=said):
        load_plans(tmp_path / "plans.json")
