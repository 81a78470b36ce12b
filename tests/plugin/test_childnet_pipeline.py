"""The whole way for networks whose layers are made of further layers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.pipeline import compile_model, replay_plan
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.pin import Pin
from tests import grouped_models as models
from tests.importing import imported_model
from tests.plugin.calling import call, parsed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("childnets")


@pytest.fixture(scope="module")
def config(folder: Path) -> CompileConfig:
    return CompileConfig(threads=1, jobs=2, database=folder / "tuning.db")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    path = folder / "bottleneck.onnx"
    onnx.save(models.bottleneck(), path)
    return path


@pytest.fixture(scope="module")
def artifact(folder: Path, model: Path, config: CompileConfig) -> Artifact:
    pins = (Pin("conv2", "*/childnet.*"),)
    return compile_model(model, folder / "net.vmfb", replace(config, pins=pins))


def _error(artifact: Artifact, model: Path) -> float:
    imported = imported_model(model)
    with Session(artifact.path, threads=1) as session:
        outputs = session.run(None, imported.samples)
    return relative_error(outputs, ReferenceModel(model, threads=1)(imported.samples))


def test_the_plan_has_the_children(artifact: Artifact) -> None:
    names = [layer.layer for layer in artifact.plan.layers]
    assert (names[0], names[-1]) == ("conv1", "conv3")
    assert len(names) >= 4
    assert all(name.startswith("conv2/") for name in names[1:-1])
    assert all(layer.nodes == ("conv2", "relu2") for layer in artifact.plan.layers[1:-1])


def test_the_module_computes_what_the_reference_does(artifact: Artifact, model: Path) -> None:
    assert _error(artifact, model) < 1e-4


def test_replaying_the_plan_gives_the_same_bytes(
    artifact: Artifact, model: Path, config: CompileConfig, tmp_path: Path
) -> None:
    artifact.plan.save(tmp_path / "plan.json")
    again = replay_plan(model, Plan.load(tmp_path / "plan.json"), tmp_path / "again.vmfb", config)
    assert again.path.read_bytes() == artifact.path.read_bytes()
    assert again.plan == artifact.plan


def test_a_plan_without_one_of_the_children_is_refused(
    artifact: Artifact, model: Path, config: CompileConfig, tmp_path: Path
) -> None:
    kept = tuple(layer for layer in artifact.plan.layers if layer.layer != artifact.plan.layers[1].layer)
    with pytest.raises(UsageError, match="conv2/"):
        replay_plan(model, replace(artifact.plan, layers=kept), tmp_path / "net.vmfb", config)


def test_inspect_and_routines_show_children(artifact: Artifact, model: Path) -> None:
    child = artifact.plan.layers[1].layer
    shown = call("sartor", "inspect", artifact.path, "--json")
    assert child in json.dumps(parsed(shown))
    layers = parsed(call("sartor", "routines", model, "--json"))["layers"]
    by_name = {layer["layer"]: layer for layer in layers}
    assert by_name[child]["candidates"]
    assert by_name["conv2"]["candidates"][0] == "cpu:f32/conv2d.stock"
    assert any(name.startswith("cpu:f32/childnet.") for name in by_name["conv2"]["candidates"])


def test_children_compute_in_8_bits(model: Path, config: CompileConfig, tmp_path: Path) -> None:
    """Parts lie in the range of the whole, so that splitting and joining moves bytes."""
    allowed = 5e-2
    narrow = replace(config, precision=Precision.INT8, max_error=allowed, pins=(Pin("conv2/*", "cpu:i8/*"),))
    artifact = compile_model(model, tmp_path / "net.vmfb", narrow)
    plan = artifact.plan
    children = [layer for layer in plan.layers if layer.layer.startswith("conv2/")]
    assert len(children) >= 4
    assert {child.dtype for child in children} == {"i8"}
    ranges = {name: each for name, each in plan.ranges.items() if name.startswith("conv2/")}
    assert {each for name, each in ranges.items() if "/split:" in name} == {plan.ranges["conv1:0"]}
    assert len({each for name, each in ranges.items() if "/split:" not in name}) == 1
    assert artifact.error is not None
    assert 1e-4 < artifact.error <= allowed
    again = replay_plan(model, plan, tmp_path / "again.vmfb", narrow)
    assert (again.plan, again.error) == (plan, artifact.error)


def test_pins_name_children(artifact: Artifact, model: Path, config: CompileConfig, tmp_path: Path) -> None:
    assert artifact.path.exists(), "all is measured already"
    child = artifact.plan.layers[1].layer
    pins = (Pin(child, "*.stock"),)
    plan = compile_model(model, tmp_path / "net.vmfb", replace(config, pins=pins)).plan
    assert {layer.layer: layer.variant for layer in plan.layers}[child].endswith(".stock")
    whole = compile_model(model, tmp_path / "net.vmfb", replace(config, pins=(Pin("conv2", "*.stock"),))).plan
    assert [layer.layer for layer in whole.layers] == ["conv1", "conv2", "conv3"]
