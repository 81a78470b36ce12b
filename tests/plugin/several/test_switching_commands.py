"""Commands on a file with a plan for the first inference and one for later ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sartor.cli.commands import bench
from sartor.codegen.linking.several.switching import LATER_ENTRY
from sartor.comparison import model_comparison
from sartor.comparison.bench_job import BenchResults, BenchRuns, _time
from sartor.policies import Precision
from sartor.runtime.manifest import read_manifest
from sartor.runtime.session import Session
from tests.plugin.calling import call, parsed
from tests.plugin.several.test_switching import Made, compiled

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return compiled(tmp_path_factory.mktemp("switching"))


def test_bench_times_later_inferences(made: Made, called: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def here(runs: BenchRuns) -> BenchResults:
        (results,) = _time([runs])
        return results

    monkeypatch.setattr(bench, "time_in_worker", here)
    options = ["--threads", 1, "--rounds", 2, "--dispatches", "--json"]
    data = parsed(call("sartor", "bench", made.files.module, *options))
    assert {*called} == {LATER_ENTRY}
    successor = read_manifest(made.files.module).successor
    assert successor is not None
    layers = {each["layer"] for each in successor["plan"]["layers"]}
    assert {name for each in data["layers"] for name in each["names"]} >= layers


def test_run_is_a_first_inference(made: Made, called: list[str]) -> None:
    assert call("sartor", "run", made.files.module, "--threads", 1).returncode == 0
    assert called == ["main_graph"]


def _falsify(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Double what one of the functions computes."""
    run: Run = Session.run

    def wrong(session: Session, names: object, feeds: object) -> list[Any]:
        factor = 2 if session._signature.entry == entry else 1
        return [factor * each for each in run(session, names, feeds)]

    monkeypatch.setattr(Session, "run", wrong)


def test_compare_checks_both_plans_and_names_the_wrong_one(
    made: Made, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _falsify(LATER_ENTRY, monkeypatch)
    result = call("sartor", "compare", made.files.module, "--vs", made.imported.path, "--threads", 1)
    assert called == ["main_graph", LATER_ENTRY]
    assert result.returncode == 1
    assert "by the plan for later inferences" in result.stderr


@pytest.mark.parametrize(
    ("wrong_entry", "plan_for"), [("main_graph", "the first inference"), (LATER_ENTRY, "later inferences")]
)
def test_compare_looks_into_the_plan_that_is_further_off(
    made: Made, monkeypatch: pytest.MonkeyPatch, wrong_entry: str, plan_for: str
) -> None:
    _falsify(wrong_entry, monkeypatch)
    options = ["--vs", made.imported.path, "--threads", 1, "--layers", "--max-error", 9, "--json"]
    data = parsed(call("sartor", "compare", made.files.module, *options))
    manifest = read_manifest(made.files.module)
    assert manifest.successor is not None
    plan = manifest.plan if wrong_entry == "main_graph" else manifest.successor["plan"]
    assert data["plan_for"] == plan_for
    assert {each["layer"]: each["routine"] for each in data["layers"]} == {
        each["layer"]: each["variant"] for each in plan["layers"]
    }


@pytest.mark.parametrize("narrower", ["plan", "successor"])
def test_outputs_may_differ_by_what_the_narrower_plan_may(
    made: Made, monkeypatch: pytest.MonkeyPatch, narrower: str
) -> None:
    module = made.files.module
    manifest = read_manifest(module)
    narrow = json.loads(json.dumps(getattr(manifest, narrower)).replace("cpu:f32/", "cpu:bf16/"))
    assert narrow != getattr(manifest, narrower)
    assert model_comparison.usual_error(module) == Precision.F32.usual_error
    monkeypatch.setattr(model_comparison, "module_manifest", lambda *_: replace(manifest, **{narrower: narrow}))
    assert model_comparison.usual_error(module) == Precision.MIXED.usual_error
