"""What a compilation says of its module, of the front, and of times in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sartor.artifact import Artifact, ParetoFront, ParetoPoint
from sartor.cli.tables import compile_summary
from sartor.cli.tables.compile_summary import proof
from sartor.cli.tables.in_network_table import Row, in_network_json, in_network_rows
from sartor.cli.tables.pareto_table import front_json, show_front
from sartor.cli.tables.routine_counts import stock_time
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.dispatch_statistics import Dispatch, DispatchStatistics
from sartor.runtime.driver.device import device_settings
from sartor.runtime.manifest import Manifest
from sartor.tuning.records.plan import AdaptChoice, LayerChoice, Plan
from sartor.tuning.selection.problem.limits import Quantity
from tests.plugin.planning.plans import PLAN
from tests.plugin.planning.plans import PLAN as NO_LAYERS
from tests.plugin.planning.two_devices import CONFIG, selected, transfers


@pytest.mark.parametrize(
    ("seconds", "command"),
    [
        (1e-5, ["sartor", "run", "net.vmfb"]),
        (
            1e-2,
            ["iree-run-module", "--device=local-sync", "--module=net.vmfb", "--function=main_graph", "--input=@x.npy"],
        ),
    ],
)
def test_stock_tools_do_not_run_several_segments(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch, seconds: float, command: list[str]
) -> None:
    imported = imported_of("lenet")
    recipe = selected(imported, transfers(seconds, seconds))
    manifest = Manifest.from_json(recipe.manifest(imported, CONFIG.header))
    monkeypatch.setattr(compile_summary, "read_manifest", lambda _: manifest)
    assert compile_summary.run_command(Artifact(Path("net.vmfb"), recipe.plan, None, 0)) == command


@pytest.mark.parametrize(
    ("workers", "flags"),
    [(1, ["--device=local-sync"]), (2, ["--device=local-task", *device_settings(threads=2).flags])],
)
def test_stock_tools_are_given_the_threads_of_the_plan(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch, workers: int, flags: list[str]
) -> None:
    imported = imported_of("lenet")
    recipe = selected(imported, transfers(1e-2, 1e-2))
    manifest = Manifest.from_json(recipe.manifest(imported, CONFIG.header))
    manifest = replace(manifest, plan={**manifest.plan, "workers": workers})
    monkeypatch.setattr(compile_summary, "read_manifest", lambda _: manifest)
    artifact = Artifact(Path("net.vmfb"), recipe.plan, None, 0)
    command = compile_summary.run_command(artifact)
    assert command[: 1 + len(flags)] == ["iree-run-module", *flags]
    assert len(flags) == 1 or any("topology" in flag for flag in flags)


def test_much_time_in_stock_code_is_told(imported_of: Callable[[str], ImportedModel]) -> None:
    plan = selected(imported_of("lenet"), transfers(1e-2, 1e-2)).plan
    choices = [replace(layer, variant="cpu:f32/conv2d.direct", seconds=1.0, in_place=None) for layer in plan.layers]
    for stock, sentence in ((1, ""), (2, f"29% of the time: {choices[0].layer}, {choices[1].layer}")):
        changed = [replace(choice, variant="cpu:f32/block.stock") for choice in choices[:stock]]
        assert stock_time(replace(plan, layers=(*changed, *choices[stock:7]))).sentence == sentence
    slow = replace(choices[0], variant="cpu:f32/block.stock", in_place=3.0)
    found = stock_time(replace(plan, layers=(slow, *choices[1:4])))
    assert found.share == pytest.approx(0.5)
    assert found.layers == (slow.layer,)


@pytest.mark.parametrize(
    ("known", "shown", "numbers"),
    [
        ({"baseline": 2e-2}, "20.000", (20.0, None, 4.0)),
        ({"stock_estimate": 3e-2}, "about 30.000 by its layers; not built", (None, 30.0, None)),
    ],
)
def test_what_is_not_built_is_an_estimate(
    imported_of: Callable[[str], ImportedModel],
    monkeypatch: pytest.MonkeyPatch,
    known: dict[str, float],
    shown: str,
    numbers: tuple[float | None, ...],
) -> None:
    monkeypatch.setattr(compile_summary, "run_command", lambda _: [])
    monkeypatch.setattr(compile_summary, "read_manifest", lambda _: Mock(states=(), described_states=()))
    plan = selected(imported_of("lenet"), transfers(1e-2, 1e-2)).plan
    times: dict[str, Any] = {"measured": 5e-3, "baseline": None, "stock_estimate": None, **known}
    plan = replace(plan, **times)
    assert compile_summary.shown_stock(plan) == shown
    found = compile_summary.summary(Artifact(Path("net.vmfb"), plan, None, 0))
    assert (found["stock_ms"], found["stock_estimate_ms"], found["speedup"]) == pytest.approx(numbers)
    assert plan.unmeasured().stock_estimate is None


def test_what_layers_say_is_told_of_both_plans(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_summary, "run_command", lambda _: [])
    monkeypatch.setattr(compile_summary, "read_manifest", lambda _: Mock(states=(), described_states=()))
    plan = selected(imported_of("lenet"), transfers(1e-2, 1e-2)).plan
    first, later = "each of 5 layers is exact", "its layers were not compared: they vary"
    artifact = Artifact(Path("net.vmfb"), plan, 0.0, 0, successor=plan, layers=first, successor_layers=later)
    found = compile_summary.summary(artifact)
    assert found["layers_compared"] == first
    assert found["successor"]["layers_compared"] == later
    facts = dict(compile_summary._facts(artifact))
    assert (facts["layers one by one"], facts["their layers one by one"]) == (first, later)
    assert compile_summary.summary(replace(artifact, layers=""))["layers_compared"] is None


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


def layer(name: str, symbol: str, seconds: float | None) -> LayerChoice:
    return LayerChoice(name, (name,), "task", "cpu:f32/conv2d.stock", symbol, seconds, None, 0, "f32", None, None)


IN_NETWORK_TABLE_PLAN = replace(
    NO_LAYERS,
    layers=(layer("one", "sa", 1e-4), layer("two", "sb", None), layer("three", "sa", 1e-4), layer("none", "sd", 1e-4)),
    adapts=(AdaptChoice("one", "two", 0, "cpu:f32@nchw", "cpu:f32@nhwc", "sc", 1e-5, None),),
    predicted=3e-4,
)


def test_layers_with_the_same_code_share_a_row() -> None:
    dispatches = (
        Dispatch("sa_kernel", 2, 3e-4),
        Dispatch("sb_dispatch_0", 1, 2e-4),
        Dispatch("sc_dispatch_0", 1, 2e-5),
    )
    rows = in_network_rows(DispatchStatistics(1e-3, dispatches), IN_NETWORK_TABLE_PLAN)
    assert rows == [
        Row(("one", "three"), 1.5e-4, 1e-4),
        Row(("two",), 2e-4, None),
        Row(("one -> two",), 2e-5, 1e-5),
    ]
    assert in_network_json(rows)[0] == {"names": ("one", "three"), "seconds": 1.5e-4, "predicted": 1e-4}
