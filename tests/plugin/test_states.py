"""The whole way for networks that keep states between calls: found by name or declared, run, inspected and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import zoo
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.frontend.states import state_pairs
from sartor.pipeline import compile_model
from sartor.policies import StatePolicy
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.manifest import STATES_FORMAT, read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.settings.state_patterns import StatePattern
from sartor.tuning.networks.build_job import NetFiles
from tests.codegen.linking.test_stitching import build, split
from tests.importing import imported_model
from tests.plugin.calling import assert_refused, call, parsed
from tests.state_models import recurrent

START = (0.5, -0.25, 0.125, 0, 0.5, 0.25, -0.5, 0.75)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "recurrent.onnx"
    onnx.save(recurrent(), path)
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> CompileConfig:
    database = tmp_path_factory.mktemp("db") / "tuning.db"
    return CompileConfig(threads=1, jobs=1, database=database, time_budget=0)


@pytest.fixture(scope="module")
def artifact(model: Path, config: CompileConfig, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A file with a declared state, which begins with what is bound, and one that is found."""
    declared = replace(config, states=(StatePattern("hn", "h"),), bindings={"h": START})
    assert declared.fixed == {}
    return compile_model(model, tmp_path_factory.mktemp("out") / "net.vmfb", declared)


def follow(session: Session, model: Path, states: dict[str, str], calls: int) -> float:
    """The largest error of several calls beside a reference whose states are passed by hand."""
    random, worst = np.random.default_rng(0), 0.0
    reference, names = ReferenceModel(model, threads=1), [each.name for each in onnx.load(model).graph.output]
    held = session.save()
    (free,) = session.get_inputs()
    for _ in range(calls):
        feeds = {free.name: random.standard_normal([size or 0 for size in free.shape]).astype(np.float32)}
        right = dict(zip(names, reference({**feeds, **held}), strict=True))
        found = session.run(None, feeds)
        expected = [right[output.name] for output in session.get_outputs()]
        held = {name: right[output] for name, output in states.items()}
        saved = session.save()
        worst = max(worst, relative_error([*found, *saved.values()], [*expected, *(held[name] for name in saved)]))
    return worst


def test_states_are_kept_and_begin_again(artifact: Artifact, model: Path) -> None:
    assert read_manifest(artifact.path).described_states == [
        "hn -> h: float32[1, 1, 8], begins with 0.5,-0.25,0.125,0,0.5,0.25,-0.5,0.75",
        "cn -> c: float32[1, 1, 8], begins with zeros",
    ]
    with Session(artifact.path, threads=1) as session:
        for _ in range(2):
            begun = session.save()
            np.testing.assert_array_equal(np.concatenate([begun["h"].ravel(), begun["c"].ravel()]), [*START, *[0] * 8])
            assert follow(session, model, {"h": "hn", "c": "cn"}, 6) < 1e-5
            session.reset()


def test_commands_tell_of_states(artifact: Artifact, model: Path) -> None:
    assert parsed(call("sartor", "inspect", artifact.path, "--json"))["states"][0] == {
        "input": "h",
        "output": "hn",
        "start": [*START],
    }
    assert "cn -> c: float32[1, 1, 8], begins with zeros" in call("sartor", "inspect", artifact.path).stdout
    kept = parsed(call("sartor", "run", artifact.path, "--json"))
    assert [each["name"] for each in kept["outputs"]] == ["y"]
    passed = parsed(call("sartor", "run", artifact.path, "--no-state", "--input", "h=zeros", "--json"))
    assert [each["name"] for each in passed["outputs"]] == ["y", "hn", "cn"]
    refused = call("sartor", "run", artifact.path, "--input", "h=zeros")
    assert_refused(refused, 2, "'h' is a state that", "--no-state")
    assert call("sartor", "compare", artifact.path, "--vs", model).returncode == 0


def test_what_is_no_state_is_refused(model: Path, tmp_path: Path) -> None:
    arguments = [model, "-o", tmp_path / "net.vmfb", "--tuning-db", tmp_path / "t.db"]
    assert_refused(call("compile-to-vmfb", *arguments, "--state", "hm=h"), 2, "no output 'hm'", "'y', 'hn', 'cn'")
    assert_refused(call("compile-to-vmfb", *arguments, "--state", "hn=h", "--no-state"), 2, "leave one of the two out")
    assert_refused(call("compile-to-vmfb", *arguments, "--state", "hn"), 2, "expected OUTPUT=INPUT")
    shapes = ["--shape", "x=3,1,6", "--shape", "x=4,1,6"]
    assert_refused(
        call("compile-to-vmfb", *arguments, *shapes, "--state", "hn=h"), 2, "not kept in a file for several shapes"
    )
    with pytest.raises(UsageError, match="on one device of this machine only"):
        CompileConfig(target="cpu,vulkan", states=("hn=h",))  # type: ignore[arg-type]
    assert not (tmp_path / "net.vmfb").exists()


def test_a_detector_of_speech_keeps_its_states_with_weights_beside_it(tmp_path: Path) -> None:
    path = zoo.write("vad_lstm", tmp_path)
    imported = imported_model(path, states=StatePolicy((StatePattern.parse("next_*=*"),)))
    states = {state.input: state.output for state in imported.states}
    assert states == {f"{name}_{layer}": f"next_{name}_{layer}" for layer in range(2) for name in ("hidden", "memory")}
    files = NetFiles(tmp_path / "net.vmfb", tmp_path / "net.irpa")
    net = replace(split(imported), states=state_pairs(imported))
    build(imported, net, files, states=imported.states, format=STATES_FORMAT)
    with Session(files.module, threads=2, parameters=files.parameters) as session, session.fork() as other:
        for each in (session, other):
            assert follow(each, path, states, 3) < 1e-4
