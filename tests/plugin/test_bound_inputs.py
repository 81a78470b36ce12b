"""A model with a bound input, from the command line to its module, and to those that run the model beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.pipeline import replay_plan
from sartor.runtime.module_facts import bound_inputs, input_names, module_signature
from sartor.tuning.records.plan import Plan
from tests.plugin.calling import assert_refused, call, parsed
from tests.plugin.onnx_model.builders import relative_error, run
from tests.plugin.rate_models import RATE, rate_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, the module of its branch for 16000, and the plan."""
    folder = tmp_path_factory.mktemp("rate")
    onnx.save(rate_model(), folder / "rate.onnx")
    options = ("--bind", f"sr={RATE}", "--pin", "*=*transposed", "--save-plan", "rate.json", "--tuning-db", "t.db")
    done = call("compile-to-vmfb", "rate.onnx", "-o", "rate.vmfb", "--threads", 1, *options, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_module_takes_one_input_less_and_says_so(folder: Path) -> None:
    assert [each.name for each in module_signature(folder / "rate.vmfb").inputs] == ["x"]
    assert input_names(folder / "rate.vmfb") == {"x", "sr"}
    assert input_names(folder / "nothing.vmfb") == frozenset()
    (bound,) = bound_inputs(folder / "rate.vmfb")
    assert str(bound.spec) == "int64[]"
    assert bound.array.item() == RATE
    shown = call("sartor", "inspect", folder / "rate.vmfb")
    assert "sr: int64[] = 16000" in shown.stdout


def test_it_computes_the_branch_of_its_value(folder: Path) -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
    np.save(folder / "x.npy", x)
    parsed(call("sartor", "run", "rate.vmfb", "--input", "x=x.npy", "--output-dir", ".", "--json", folder=folder))
    (right,) = run(rate_model(), {"x": x, "sr": np.array(RATE)}).values()
    assert relative_error(np.load(folder / "y.npy"), right) < 1e-6


def test_what_runs_the_model_beside_it_gets_the_value(folder: Path) -> None:
    beside = ("rate.vmfb", "--vs", "rate.onnx", "--json")
    timed = parsed(call("sartor", "bench", *beside, "--rounds", 1, folder=folder))
    assert [each["name"] for each in timed["runs"]] == ["sartor", "onnxruntime"]
    compared = parsed(call("sartor", "compare", *beside, "--layers", folder=folder))
    assert [each["within"] for each in compared["outputs"]] == [True]
    assert len(compared["layers"]) == 1


def test_a_value_for_a_bound_input_is_refused(folder: Path) -> None:
    refused = call("sartor", "run", "rate.vmfb", "--input", "sr=zeros", folder=folder)
    assert_refused(refused, 2, "'sr' was bound to 16000")


def test_another_model_has_no_such_input(folder: Path) -> None:
    other = rate_model()
    next(value for value in other.graph.input if value.name == "sr").name = "rate_of_samples"
    other.graph.node[0].input[0] = "rate_of_samples"
    onnx.save(other, folder / "other.onnx")
    refused = call("sartor", "compare", "rate.vmfb", "--vs", "other.onnx", folder=folder)
    assert_refused(refused, 2, "'sr' bound", "name the model it was compiled from")


@pytest.mark.parametrize(
    ("bindings", "said"),
    [
        ({}, "bound to 16000, which this compilation does not bind; pass --bind sr=16000"),
        ({"sr": 8000}, "bound to 16000, not to 8000"),
        ({"sr": RATE, "x": (0.0,) * 8}, "without a bound input 'x'"),
    ],
)
def test_a_plan_with_other_values_is_refused(folder: Path, bindings: dict[str, object], said: str) -> None:
    plan, config = Plan.load(folder / "rate.json"), CompileConfig(bindings=bindings)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=said):
        replay_plan(folder / "rate.onnx", plan, folder / "again.vmfb", config)


def test_a_plan_from_before_bound_inputs_is_read(folder: Path) -> None:
    old = json.loads((folder / "rate.json").read_text())
    del old["bound"]
    assert Plan.from_json(old, "an old plan").bound == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--bind", "sr"), "expected NAME=16000"),
        (("--bind", "sr=fast"), "'fast', expected finite numbers"),
        (("--bind", "sr=1", "--bind", "sr=2"), "--bind is given twice for 'sr'"),
        (("--bind", "x=1", "--shape", "x=1,8"), "'x' is given both a shape and a value"),
        (("--bind", "rate=1"), "'rate', which the model does not have"),
    ],
)
def test_options_without_sense_are_refused(folder: Path, options: tuple[str, ...], said: str) -> None:
    done = call("compile-to-vmfb", "rate.onnx", "-o", "no.vmfb", *options, folder=folder)
    assert_refused(done, 2, said)
