"""Modules that keep states between calls: in two buffers of their own, or around code that IREE compiles whole."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.functions.stateful_calls import StatefulCalls
from sartor.codegen.linking.several.level import level_of, portable
from sartor.codegen.linking.stitching import stitch
from sartor.codegen.mlir.iree_compiler import inlined, translate
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import state_pairs
from sartor.policies import StatePolicy
from sartor.runtime.driver.iree_runtime import tool
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import STATES_FORMAT, read_manifest
from sartor.runtime.session import Session
from sartor.runtime.several.record import Alternative
from sartor.settings.state_patterns import StatePattern
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, UnsplitNetwork, stitchings
from sartor.tuning.networks.joined_job import JoinedModule, JoinedPlan, build_joined
from tests.codegen.linking.test_stitching import TARGET, build, manifest_of, split
from tests.importing import imported_model
from tests.state_models import DELAY, counter

ONE = np.ones((1, 4), np.float32)
START = {"total_in": (1.0, 2.0, 3.0, 4.0), "odd_in": (True, False)}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    path = tmp_path_factory.mktemp("counter") / "counter.onnx"
    onnx.save(counter(), path)
    policy = StatePolicy((StatePattern.parse("*_out=*_in"),))
    return imported_model(path, bindings=START, states=policy)


@pytest.fixture(scope="module", params=["split", "whole", "levels"])
def module(request: pytest.FixtureRequest, imported: ImportedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files, states = NetFiles(tmp_path_factory.mktemp("net") / "net.vmfb", None), state_pairs(imported)
    net = replace(split(imported), states=states)
    said = {"states": imported.states, "format": STATES_FORMAT}
    if request.param == "levels":
        build_levels(imported, net, files, said)
    elif request.param == "split":
        build(imported, net, files, **said)
    else:
        inputs = {each.name: each.type for each in imported.graph.inputs}
        whole = UnsplitNetwork(imported.unsplit, StatefulCalls(inputs, len(imported.graph.outputs), states))
        build(imported, whole, files, **said)
    return files.module


def build_levels(imported: ImportedModel, net: SplitNetwork, files: NetFiles, said: dict[str, object]) -> None:
    """One file for two levels, of which the module chooses one when it is loaded."""
    if platform.machine() != "x86_64":
        pytest.skip("the levels are those of x86-64")
    levels = [level_of(portable(Target.create("cpu", name))) for name in ("x86-64-v4", "x86-64-v3")]
    own = manifest_of(imported)
    plans = tuple(Alternative("cpu", level.name, own.inputs, own.outputs, needs=level.needs) for level in levels)
    manifest = manifest_of(imported, **said, alternatives=plans, levels=tuple(level.name for level in levels))
    joined = [JoinedPlan(net, imported.weights, level.target) for level in levels]
    build_joined([JoinedModule(joined, "", manifest.to_json())], files)


def calls(session: Session, count: int = 1) -> dict[str, Array]:
    names = [output.name for output in session.get_outputs()]
    for _ in range(count):
        outputs = session.run(None, {"x": ONE})
    return dict(zip(names, outputs, strict=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_go_on_where_the_last_one_ended(module: Path, threads: int) -> None:
    with Session(module, threads=threads) as session:
        assert [each.name for each in session.get_inputs()] == ["x"]
        assert [output.name for output in session.get_outputs()] == ["before", "same", "mean"]
        assert next((state.name, state.shape) for state in session.get_states()) == ("total_in", [1, 4])
        first = calls(session)
        np.testing.assert_array_equal(first["same"], [[2, 3, 4, 5]])
        third = calls(session, 2)
        np.testing.assert_array_equal(third["before"], [[3, 4, 5, 6]])
        np.testing.assert_array_equal(third["same"], [[4, 5, 6, 7]])
        np.testing.assert_allclose(third["mean"], third["same"] / 3, rtol=1e-6)
        saved = session.save()
        np.testing.assert_array_equal(saved["steps_in"], [3])
        np.testing.assert_array_equal(saved["odd_in"], [False, True])
        # What was given back is the caller's: later calls leave it, and it is no state.
        third["same"][...] = 100
        fourth = calls(session)
        np.testing.assert_array_equal(fourth["same"], [[5, 6, 7, 8]])
        np.testing.assert_array_equal(first["same"], [[2, 3, 4, 5]])
        np.testing.assert_array_equal(third["before"], [[3, 4, 5, 6]])


def test_states_begin_again_and_are_copied_out_and_back(module: Path) -> None:
    with Session(module, threads=1) as session:
        calls(session, 2)
        saved = session.save()
        after = calls(session, 3)
        session.reset()
        np.testing.assert_array_equal(session.save()["total_in"], [START["total_in"]])
        np.testing.assert_array_equal(calls(session)["same"], [[2, 3, 4, 5]])
        for _ in range(2):
            session.restore(saved)
            np.testing.assert_array_equal(calls(session, 3)["mean"], after["mean"])
        np.testing.assert_array_equal(saved["steps_in"], [2])
        for wrong, said in (
            ({**saved, "x": ONE}, "has no state 'x'"),
            ({"total_in": ONE}, "no value is given for the state 'steps_in'"),
            ({**saved, "total_in": ONE[0]}, "state 'total_in' expects"),
        ):
            with pytest.raises(UsageError, match=said):
                session.restore(wrong)
        np.testing.assert_array_equal(calls(session)["same"], [[7, 8, 9, 10]])


def test_several_sequences_have_states_of_their_own(module: Path) -> None:
    with Session(module, threads=2) as session:
        calls(session, 2)
        other = session.fork()
        np.testing.assert_array_equal(calls(other)["same"], [[2, 3, 4, 5]])
        np.testing.assert_array_equal(calls(session)["same"], [[4, 5, 6, 7]])
        other.restore(session.save())
        session.reset()
        session.close()
        np.testing.assert_array_equal(calls(other)["same"], [[5, 6, 7, 8]])
        with pytest.raises(UsageError, match="the session is closed"):
            session.fork()
        other.close()


def test_states_are_computed_in_place(imported: ImportedModel) -> None:
    net = replace(split(imported), states=state_pairs(imported))
    (parts,) = stitchings(net, imported.weights, TARGET).values()
    planned = translate(inlined(stitch(parts, TARGET, "").text), TARGET.flags, to="stream", start="flow")
    functions = {text.partition("(")[0]: text for text in planned.split("util.func ")}
    for name in ("private @main_graph$stateful$apart", "private @main_graph$stateful$bound$apart"):
        # Two outputs equal a state before and after the call; they have memory of their own.
        assert functions[name].count("stream.cmd.copy") == 2
        assert functions[name].count("stream.resource.alloca ") == 0


def test_bound_runs_keep_states(module: Path) -> None:
    with Session(module, threads=1) as session:
        bound = session.bind({"x": ONE})
        for _ in range(3):
            bound.run()
        np.testing.assert_array_equal(bound.outputs["same"].to_host(), [[4, 5, 6, 7]])
        np.testing.assert_array_equal(session.run_async(["same"], {"x": ONE}).result()[0], [[5, 6, 7, 8]])


def test_callers_may_pass_states(module: Path) -> None:
    feeds = {"x": ONE, "total_in": 3 * ONE, "steps_in": np.array([1]), "odd_in": np.array([True, True])}
    with Session(module, threads=1, keep_states=False) as session:
        for _ in range(2):
            before, total, steps, same, odd, mean = session.run(None, feeds)
        np.testing.assert_array_equal(np.concatenate([before, total, same, mean]), [[3] * 4, [4] * 4, [4] * 4, [2] * 4])
        np.testing.assert_array_equal(steps, [2])
        assert not odd.any()
        assert session.get_states() == []
        with pytest.raises(UsageError, match=r"keeps no states between calls; name them .*--state"):
            session.reset()


def test_the_manifest_says_what_they_are(module: Path) -> None:
    manifest = read_manifest(module)
    assert manifest.described_states == [
        "total_out -> total_in: float32[1, 4], begins with 1.0,2.0,3.0,4.0",
        "steps_out -> steps_in: int64[1], begins with zeros",
        "odd_out -> odd_in: bool[2], begins with true,false",
    ]


def test_stock_tools_run_both_entries(module: Path) -> None:
    program = [str(tool("iree-run-module")), "--device=local-sync", f"--module={module}", "--input=1x4xf32=1"]
    plain = ["--function=main_graph", "--input=1x4xf32=3", "--input=1xi64=1", "--input=2xi8=1"]
    for rest, expected in ((plain, "4 4 4 4"), (["--function=main_graph$stateful"], "2 3 4 5")):
        done = subprocess.run([*program, *rest], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert f"1x4xf32=[{expected}]" in done.stdout


@pytest.mark.parametrize("kind", ["split", "whole", "levels"])
def test_a_state_that_is_an_input_is_not_the_callers_memory(kind: str, tmp_path: Path) -> None:
    found = imported_model(onnx.parser.parse_model(DELAY), states=StatePolicy((StatePattern.parse("*_out=*_in"),)))
    files, states = NetFiles(tmp_path / "net.vmfb", None), state_pairs(found)
    inputs = {each.name: each.type for each in found.graph.inputs}
    whole = UnsplitNetwork(found.unsplit, StatefulCalls(inputs, len(found.graph.outputs), states))
    parts, said = replace(split(found), states=states), {"states": found.states, "format": STATES_FORMAT}
    if kind == "levels":
        build_levels(found, parts, files, said)
    else:
        build(found, whole if kind == "whole" else parts, files, **said)
    with Session(files.module, threads=1) as session:
        run = session.bind({"x": ONE})
        for value, right in ((1, 1), (4, 3), (9, 5)):
            run.inputs["x"].to_host()[:] = value
            run.run()
            np.testing.assert_array_equal(run.outputs["y"].to_host(), np.full((1, 4), right, np.float32))
