"""What a compilation says of its module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sartor.artifact import Artifact
from sartor.cli.tables import compile_summary
from sartor.cli.tables.routine_counts import stock_time
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.driver.device import device_settings
from sartor.runtime.manifest import Manifest
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
