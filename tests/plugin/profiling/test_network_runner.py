"""Who is to blame where nothing gives a result, and what a module is compared with, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.config import CompileConfig
from sartor.errors import CompileError, ReferenceFailedError
from sartor.pipeline import compile_model
from sartor.policies import Search
from sartor.profiling import network_runner, verifier, verify_job
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.state_check import CallErrors
from sartor.profiling.verifier import Verifier
from sartor.profiling.verify_job import References, Verified
from sartor.reference import expected_outputs
from sartor.reference.expected_outputs import Expected
from sartor.reference.layerwise.layer_check import WrongTensor
from sartor.reference.reference_job import ReferenceRun
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.runtime.driver.signature import Array
from sartor.samples.given_samples import HeldSamples
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks.profile_job import profile_nets
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers import calls
from tests.importing import ModelFile

OLD = b"what was there before"


def _crash(*_: object, **__: object) -> None:
    raise CompileError("it ended as crashed")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "out.vmfb"
    path.write_bytes(OLD)
    return path


@pytest.fixture
def hurried(tmp_path: Path) -> CompileConfig:
    """No time for plans, so that the first run of ONNX Runtime is beside that of the module."""
    return CompileConfig(threads=1, database=tmp_path / "t.db", time_budget=0.01)


def test_a_crash_of_onnx_runtime_is_no_fault_of_a_plan(
    model_file: ModelFile, output: Path, hurried: CompileConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verifier, "_verified", _crash)
    monkeypatch.setattr(ReferenceRun, "outputs", _crash)
    monkeypatch.setattr(ReferenceRun, "begin", lambda *_: None)
    model = model_file("residual")
    with pytest.raises(ReferenceFailedError, match=rf"compared with, fails on '{model.name}': it ended as crashed"):
        compile_model(model, output, hurried)
    assert output.read_bytes() == OLD


def test_a_crash_of_the_module_is_its_own(
    model_file: ModelFile, output: Path, hurried: CompileConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verifier, "_verified", _crash)
    with pytest.raises(CompileError, match="no plan is right"):
        compile_model(model_file("residual"), output, hurried)
    assert output.read_bytes() == OLD


def test_a_crash_of_onnx_runtime_on_a_later_sample_is_no_fault_of_a_plan(
    model_file: ModelFile, output: Path, hurried: CompileConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran on the first sample, so that all are run again, without the module."""
    monkeypatch.setattr(Verifier, "_verified", _crash)
    monkeypatch.setattr(verifier, "call_until_done", _crash)
    with pytest.raises(ReferenceFailedError, match="it ended as crashed"):
        compile_model(model_file("residual"), output, hurried)
    assert output.read_bytes() == OLD


def test_a_network_that_kills_its_worker_leaves_the_others(
    model_file: ModelFile, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs beside the stock model, which a full search never leaves out, and is the first that runs alone."""
    alone: list[int] = []

    def call(*given: Any, **options: Any) -> object:
        function, arguments = given[1:3]
        if function is profile_nets:
            count = len(arguments["trial"].nets)
            alone.append(count)
            if count > 1 or alone.count(1) == 1:
                raise CompileError("profiling plans ended as crashed: signal 11")
        return original(*given, **options)

    original = calls.call
    monkeypatch.setattr(network_runner, "call", call)
    config = CompileConfig(threads=1, database=tmp_path / "t.db", plans=1, search=Search.FULL)
    compiled = compile_model(model_file("residual"), output, config)
    assert alone[:3] == [2, 1, 1]
    assert compiled.plan.unsplit


def test_passes_over_a_network_alone_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another one all are in turn."""
    timed: list[str] = []

    def dispatches(_: NetRunner, build: Any, __: float) -> tuple[Dispatch, ...]:
        timed.append(build.digest)
        return (Dispatch(build.digest, 1, float(len(timed))),)

    monkeypatch.setattr(NetRunner, "_dispatches", dispatches)
    runner = NetRunner(Mock(), SampleSet(HeldSamples(({"x": np.zeros(1)},)), ""), ErrorBudget(RELATIVE, 1e-3))
    builds: list[tuple[Any, float]] = [(Mock(digest=name), 1.0) for name in "ab"]
    assert [len(runner.dispatches(builds[:1], passes)["a"]) for passes in (1, 3, 3)] == [1, 3, 3]
    assert timed == ["a"] * 3
    assert len(runner.dispatches(builds, 2)["a"]) == 2
    assert timed[3:] == ["a", "b"] * 2
    runner.dispatches(builds[1:], 1)
    assert timed[7:] == ["b"]


def test_layers_are_compared_on_the_samples_with_the_largest_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = SampleSet(HeldSamples(tuple({"x": np.full(1, index)} for index in range(4))), "")
    errors = Verified((0.02, 0.0, 0.5, 0.1), (1.0,) * 4)
    compared: list[int] = []

    def verdict(_: LayerJudge, __: object, ___: object, given: list[dict[str, Any]]) -> LayerVerdict:
        compared.extend(int(each["x"][0]) for each in given)
        return LayerVerdict(1)

    monkeypatch.setattr(Verifier, "_verified", lambda *_: errors)
    monkeypatch.setattr(LayerJudge, "verdict", verdict)
    build, builder = Mock(), Mock()
    build.recipe.plan.unsplit, builder.imported.states = False, ()
    run = NetRunner(builder, samples, ErrorBudget(RELATIVE, 1e-3, amplifies=True)).judged(build)
    assert run.status is Status.OK
    assert sorted(compared) == [2, 3]


@pytest.mark.parametrize(("given", "asked"), [(None, True), (1e-2, False)])
def test_layers_of_what_rounds_decide_though_its_outputs_are_right(
    given: float | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = LayerVerdict(1, wrong=WrongTensor("conv", "q", "node 'q' (QuantizeLinear)", 2, 9))
    monkeypatch.setattr(Verifier, "_verified", lambda *_: Verified((0.0,), (1.0,)))
    monkeypatch.setattr(LayerJudge, "verdict", lambda *_: wrong)
    samples = SampleSet(HeldSamples(({"x": np.zeros(1)},)), "")
    budget = ErrorBudget(RELATIVE, 1e-3, given=given, amplifies=True, rounds=True)
    builder = Mock()
    builder.imported.states = ()
    run = NetRunner(builder, samples, budget).judged(Mock())
    assert run.status is (Status.WRONG_RESULT if asked else Status.OK)
    assert ("layer 'conv'" in run.message) == asked


@pytest.mark.parametrize(
    ("single", "calls", "status"),
    [
        # Beyond the bound its layers were judged, and rounding may be amplified somewhat more in calls.
        (0.5, 1.9, Status.OK),
        (0.5, 2.1, Status.WRONG_RESULT),
        # Within it the bound holds, though layers were compared.
        (5e-4, 9e-4, Status.OK),
        (5e-4, 1.9e-3, Status.WRONG_RESULT),
    ],
)
def test_calls_are_judged_by_the_bound_or_beyond_it_by_the_single_run(
    single: float, calls: float, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verifier, "_verified", lambda *_: Verified((single,), (1.0,)))
    monkeypatch.setattr(Verifier, "_check_of_calls", lambda *_: None)
    monkeypatch.setattr(LayerJudge, "verdict", lambda *_: LayerVerdict(1))
    monkeypatch.setattr(verifier, "call", lambda *_: CallErrors((calls,), ("",)))
    samples = SampleSet(HeldSamples(({"x": np.zeros(1)},)), "")
    build, builder = Mock(), Mock()
    build.recipe.plan.unsplit = False
    run = NetRunner(builder, samples, ErrorBudget(RELATIVE, 1e-3, amplifies=True, rounds=True)).judged(build)
    assert run.status is status


FIRST, SECOND = ({"x": np.full(4, number, np.float32)} for number in (1, 2))


class _Counted:
    """In place of ONNX Runtime."""

    loaded = 0
    computed = 0

    def __init__(self, *_: object, **__: object) -> None:
        _Counted.loaded += 1
        self.refused, self.described = ["not the file"], "nobody"

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        _Counted.computed += 1
        return Expected([2 * feeds["x"]], [np.ones(4)])


@pytest.fixture
def references(monkeypatch: pytest.MonkeyPatch) -> References:
    _Counted.loaded = _Counted.computed = 0
    monkeypatch.setattr(verify_job, "Expectation", _Counted)
    return References((Path("model.onnx"), b""), 1, False, ())


def _compare(references: References) -> None:
    for feeds in (FIRST, SECOND):
        np.testing.assert_array_equal(references(feeds).outputs[0], 2 * feeds["x"])
    references.unload()


def test_the_next_module_is_compared_with_what_is_known(references: References) -> None:
    assert not references.refused
    for _ in range(3):
        _compare(references)
    assert (_Counted.loaded, _Counted.computed) == (1, 2)
    assert list(references.refused) == ["not the file"]


def test_large_outputs_are_computed_again(references: References, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_outputs, "_MOST_KNOWN_BYTES", 16 + 32)
    _compare(references)
    _compare(references)
    assert (_Counted.loaded, _Counted.computed) == (2, 3)


@pytest.mark.parametrize(
    "other",
    [{"x": np.full((2, 2), 1, np.float32)}, {"x": np.full(4, 1, np.float64)}, {"y": FIRST["x"]}],
    ids=["shape", "type", "name"],
)
def test_samples_are_told_apart(other: dict[str, Any]) -> None:
    assert expected_outputs._digest(FIRST) == expected_outputs._digest({"x": FIRST["x"].copy()})
    assert expected_outputs._digest(FIRST) != expected_outputs._digest(other)
