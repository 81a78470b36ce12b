"""The front as JSON and as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.artifact import ParetoFront, ParetoPoint
from sartor.cli.tables.compile_summary import proof
from sartor.cli.tables.pareto_table import front_json, show_front
from sartor.tuning.records.plan import LayerChoice, Plan
from sartor.tuning.selection.problem.limits import Quantity
from tests.plugin.planning.plans import PLAN


def plan(*variants: str) -> Plan:
    layers = tuple(
        LayerChoice(f"l{index}", (), "task", variant, "s", 1e-3, None, 0, "f32", None, None)
        for index, variant in enumerate(variants)
    )
    return replace(PLAN, layers=layers, solver="ilp", predicted=2e-3)


def point(chosen: Plan, latency: float, memory: float) -> ParetoPoint:
    needed = {Quantity.LATENCY: latency, Quantity.COLD: latency, Quantity.MEMORY: memory, Quantity.ERROR: 0.0}
    return ParetoPoint(chosen, needed)


FRONT = ParetoFront(
    Quantity.LATENCY,
    Quantity.MEMORY,
    (
        point(plan("cpu:f32/conv2d.fused_winograd{tile=4}", "cpu:f32/pool.stock"), 1e-3, 3 * 2**20),
        point(plan("cpu:f32/conv2d.direct{x=1}", "cpu:f32/pool.stock"), 2e-3, 2**20),
    ),
    complete=False,
)


def test_a_row_shows_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    show_front(FRONT)
    shown = capsys.readouterr().out
    assert "there are more between them" in shown
    assert "1 x cpu:f32/conv2d.fused_winograd" in shown
    assert "1 now cpu:f32/conv2d.direct" in shown
    assert "now cpu:f32/pool" not in shown
    assert "3.000" in shown


def test_errors_are_shown_where_layers_round(capsys: pytest.CaptureFixture[str]) -> None:
    show_front(FRONT)
    assert "simulated" not in capsys.readouterr().out
    rounded = replace(FRONT, points=tuple(replace(each, error=4.2e-3) for each in FRONT.points))
    show_front(rounded)
    shown = capsys.readouterr().out
    assert "simulated" in shown
    assert shown.count("0.0042") == len(FRONT.points)
    data = front_json(rounded)
    assert data is not None
    assert {each["simulated_error"] for each in data["points"]} == {4.2e-3}


def test_json_has_every_quantity() -> None:
    data = front_json(FRONT)
    assert data is not None
    assert [each["memory_bytes"] for each in data["points"]] == [3 * 2**20, 2**20]
    assert {each["simulated_error"] for each in data["points"]} == {None}
    assert data["points"][1]["routines"] == {"cpu:f32/conv2d.direct": 1, "cpu:f32/pool.stock": 1}
    assert front_json(None) is None


def test_a_proof_is_said_as_far_as_it_goes() -> None:
    best = plan("a")
    assert proof(best) == "ilp, optimal"
    assert proof(replace(best, optimal=False, gap=0.031)) == "ilp, within 3.10% of the optimum"
    assert proof(replace(best, optimal=False, gap=None)) == "ilp, not proven optimal"
    assert proof(replace(best, unsplit=True)) == ""
