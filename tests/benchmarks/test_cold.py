"""First inferences of the zoo's networks: what is prepared, and what is timed of it."""

from __future__ import annotations

import csv
import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sartor
from benchmarks import cold_plans
from benchmarks.cold import app
from benchmarks.cold_plans import NARROW_ERROR, ColdPlan, check_plan, plan_file, rivals_of, size_of
from benchmarks.zoo import write
from sartor.errors import UsageError
from sartor.first_inference import cold_bench
from sartor.policies import Precision
from sartor.tuning.selection.problem.cost import Objective

PLANS = tuple(ColdPlan)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network and a module of it for each plan, all of stock code."""
    folder = tmp_path_factory.mktemp("cold")
    first = plan_file("lenet5", folder, ColdPlan.LATENCY)
    config = sartor.CompileConfig(threads=1, time_budget=1.0, database=folder / "t.db")
    sartor.compile(write("lenet5", folder), config, output=first)
    for plan in PLANS[1:]:
        shutil.copyfile(first, plan_file("lenet5", folder, plan))
    return folder


def _run(*arguments: str) -> None:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open() as source:
        return list(csv.DictReader(source))


def test_what_was_not_prepared_is_not_timed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"lenet5\.onnx' is not there; make it with --only prepare"):
        CliRunner().invoke(app, ["lenet5", "-o", str(tmp_path), "--only", "time"], catch_exceptions=False)
    write("lenet5", tmp_path)
    with pytest.raises(UsageError, match=r"lenet5\.cold\.vmfb' is not there"):
        check_plan("lenet5", tmp_path, ColdPlan.KERNELS)


def test_plans_are_made_once_and_what_that_took_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[Objective, Precision, float | None]] = []

    def compiles(model: Path, config: sartor.CompileConfig, output: Path) -> None:
        compiled.append((config.objective, config.precision, config.max_error))
        output.write_bytes(b"module")

    monkeypatch.setattr(sartor, "compile", compiles)
    monkeypatch.setattr(time, "perf_counter", iter([0.0, 12.5, 20.0, 21.0]).__next__)
    for plan in (ColdPlan.LATENCY, ColdPlan.WEIGHTS, ColdPlan.LATENCY):
        cold_plans.make_plan("lenet5", tmp_path, plan, 1)
    assert compiled == [
        (Objective.LATENCY, Precision.F32, None),
        (Objective.COLD, Precision.INT8_WEIGHTS, NARROW_ERROR),
    ]
    assert cold_plans._recorded(tmp_path) == {"lenet5.latency.vmfb": 12.5, "lenet5.cold-weights.vmfb": 1.0}


def test_each_plan_is_timed_settled_and_overlapped(made: Path) -> None:
    found = rivals_of("lenet5", made, PLANS)
    assert {name: (each.module.name, each.settled) for name, each in found.items()} == {
        "latency": ("lenet5.latency.vmfb", True),
        "K": ("lenet5.cold.vmfb", True),
        "KP": ("lenet5.cold.vmfb", False),
        "KC": ("lenet5.cold-weights.vmfb", True),
        "KCP": ("lenet5.cold-weights.vmfb", False),
        "both": ("lenet5.cold+latency.vmfb", False),
    }


def test_files_are_prepared_and_timed_apart(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, object]] = []
    child = cold_bench._child

    def noted(runtime: str, model: Path, feeds: object, runs: object, options: dict[str, object]) -> object:
        started.append({"runtime": runtime, "model": model.name, **options})
        return child(runtime, model, feeds, runs, options)  # type: ignore[arg-type]

    monkeypatch.setattr(cold_bench, "_child", noted)
    common = ("lenet5", "-o", str(made), "--ablation", "--peers", "onnxruntime", "--rounds", "2")
    _run(*common, "--only", "prepare")
    saved = made / "saved" / "lenet5.ort"
    assert [each["runtime"] for each in started] == ["onnxruntime"]
    assert started[0]["save"] == str(saved)
    assert saved.exists()
    started.clear()
    _run(*common, "--only", "time", "--seconds", "1")
    assert not any("save" in each for each in started)
    rows = _rows(made / "ablation.csv")
    plans = {"latency + P", "latency", "K", "KP", "KC", "KCP", "both"}
    names = plans | {"onnxruntime", "onnxruntime, .ort"}
    assert {row["runtime"] for row in rows} == names
    assert len(rows) == 2 * len(names)
    assert [row["plan"] for row in _rows(made / "sizes.csv")] == [str(plan) for plan in PLANS]


def test_no_round_begins_after_the_limit(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 40))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    begun: list[object] = []
    # It calls a worker, whose time limit is by the same clock.
    monkeypatch.setattr(cold_bench, "read_model", lambda *_: ())
    monkeypatch.setattr(cold_bench, "_bring", lambda files, state: begun.append(state))
    _run("lenet5", "-o", str(made), "--peers", "", "--rounds", "9", "--seconds", "100", "--only", "time")
    # Rounds begin at 0, 40 and 80 seconds; each has two states.
    assert len(begun) == 2 * 3


def test_a_plan_of_one_function_adds_no_weights(made: Path) -> None:
    size = size_of("lenet5", made, ColdPlan.KERNELS)
    assert (size.added_mib, size.seconds) == (0.0, 0.0)
    assert size.module_mib > 0
