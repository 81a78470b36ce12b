"""Plans, and those of a file with several: written, read back, and refused when they are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.records.plan import FORMAT, AdaptChoice, LayerChoice, Plan
from sartor.tuning.records.plan_set import PlanSet, ShapedPlan, load_plans

PLAN = Plan(
    model_sha256="0" * 64,
    target="cpu:host",
    threads=2,
    unsplit=False,
    layers=(
        LayerChoice(
            'größe "1"\n',
            ("a\\n", "b"),
            "key",
            "cpu:f32/conv2d.nhwc{tile=4}",
            "s0",
            1.25e-5,
            2e-5,
            5000,
            "f32",
            None,
            None,
        ),
    ),
    adapts=(AdaptChoice("input:x", "b", 0, "cpu:f32@nchw", "cpu:f32@nhwc", "s1", None, None),),
    objective="latency",
    solver="dprs",
    optimal=True,
    gap=0.0,
    predicted=0.1 + 0.2,
    measured=None,
    baseline=3e-3,
    memory=None,
    first=None,
    peak=1e11,
    versions={"sartor": "0.1.0"},
)


def test_a_plan_reads_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    PLAN.save(path)
    assert Plan.load(path) == PLAN
    first = path.read_bytes()
    Plan.load(path).save(path)
    assert path.read_bytes() == first


def test_a_plan_from_before_a_routine_was_renamed_has_its_new_name() -> None:
    data = json.loads(PLAN.text())
    data["layers"][0]["variant"] = "cpu:f32/block.columns_of_panels{lanes=16,vectors=4}"
    assert Plan.from_json(data, "'plan.json'").layers[0].variant == "cpu:f32/block.columns_of_4{lanes=16}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": FORMAT + 1}, f"format {FORMAT + 1}, this version reads {FORMAT}"),
        ({"format": 4}, f"format 4, this version reads {FORMAT}"),
        ({"threads": "many"}, "threads"),
        ({"layers": [{"layer": "x"}]}, r"layers\.0"),
        ({"extra": 1}, "extra"),
    ],
)
def test_errors_say_where(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan.from_json(PLAN.to_json() | change, "'plan.json'")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b"\xff\xfe", b"7", b'"plan"'])
def test_what_is_no_plan_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="plan"):
        Plan.load(path)


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("[" * 100_000, encoding="ascii")
    with pytest.raises(UsageError, match="is not JSON: its values are nested too deeply"):
        Plan.load(path)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Plan.load(tmp_path / "absent.json")
    with pytest.raises(UsageError, match="cannot be written"):
        PLAN.save(tmp_path / "absent" / "plan.json")


def test_a_plan_is_readable_json() -> None:
    data = json.loads(json.dumps(PLAN.to_json()))
    assert data["layers"][0]["variant"] == "cpu:f32/conv2d.nhwc{tile=4}"
    assert Plan.from_json(data, "it") == PLAN
    assert Plan.from_json(replace(PLAN, unsplit=True).to_json(), "it").unsplit


def test_a_rate_needs_a_time_and_operations() -> None:
    (layer,) = PLAN.layers
    assert layer.rate == pytest.approx(4e8)
    assert replace(layer, seconds=None).rate is None
    assert replace(layer, operations=0).rate is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"predicted": float("inf")},
        {"gap": float("nan")},
        {"ranges": {"layer:x": [0.1, 0]}},
        {"ranges": {"layer:0": [0.0, 0]}},
        {"ranges": {"layer:0": [1e300, 0]}},
        {"ranges": {"layer:0": [0.1, 1000]}},
    ],
    ids=str,
)
def test_numbers_that_nothing_can_be_built_from_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**PLAN.to_json(), **wrong}), encoding="utf-8")
    with pytest.raises(UsageError, match="is no plan"):
        Plan.load(path)


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
