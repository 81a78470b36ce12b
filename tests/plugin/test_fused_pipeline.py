"""The whole way for a network whose layers one kernel computes two by two."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import InfeasibleError, UsageError
from sartor.pipeline import compile_model, replay_plan
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.pin import Pin
from tests.importing import ImportedOf, ModelFile
from tests.plugin.calling import call, parsed

MODEL = "separable"
FUSED = ["apart1+joined1", "apart2+joined2"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> CompileConfig:
    database = tmp_path_factory.mktemp("db") / "tuning.db"
    return CompileConfig(threads=1, jobs=2, database=database, pins=(Pin("*", "*/fused.*"),))


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dump")


@pytest.fixture(scope="module")
def artifact(
    config: CompileConfig, dumped: Path, model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory
) -> Artifact:
    output = tmp_path_factory.mktemp("out") / "net.vmfb"
    return compile_model(model_file(MODEL), output, replace(config, dump_directory=dumped))


def test_every_pair_is_one_kernel(artifact: Artifact) -> None:
    assert [each.layer for each in artifact.plan.layers] == FUSED
    for layer in artifact.plan.layers:
        assert layer.variant.startswith("cpu:f32/fused.separable")
        assert layer.operations > 0
    assert artifact.plan.layers[0].nodes == ("apart1", "relu1", "joined1", "add")


def test_the_module_computes_what_the_reference_does(
    artifact: Artifact, imported_of: ImportedOf, model_file: ModelFile
) -> None:
    samples = imported_of(MODEL).samples
    with Session(artifact.path, threads=1) as session:
        outputs = session.run(None, samples)
    assert relative_error(outputs, ReferenceModel(model_file(MODEL), threads=1)(samples)) < 1e-4


def test_replaying_the_plan_gives_the_same_bytes(
    artifact: Artifact, config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    artifact.plan.save(tmp_path / "plan.json")
    plan = Plan.load(tmp_path / "plan.json")
    again = replay_plan(model_file(MODEL), plan, tmp_path / "again.vmfb", replace(config, pins=()))
    assert again.path.read_bytes() == artifact.path.read_bytes()
    assert again.plan == artifact.plan


def test_a_plan_with_half_a_fusion_is_refused(
    artifact: Artifact, config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    first, second = artifact.plan.layers
    halved = replace(artifact.plan, layers=(replace(first, layer="apart1"), second))
    with pytest.raises(UsageError, match="apart1"):
        replay_plan(model_file(MODEL), halved, tmp_path / "net.vmfb", config)


def test_a_pin_may_keep_a_pair_apart(
    artifact: Artifact, config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    assert artifact.path.exists(), "all is measured already"
    pins = Pin("joined1", "*/conv2d.direct{*"), Pin("apart2", "*/fused.separable{*")
    plan = compile_model(model_file(MODEL), tmp_path / "net.vmfb", replace(config, pins=pins)).plan
    assert [layer.layer for layer in plan.layers] == ["apart1", "joined1", FUSED[1]]
    both = Pin("apart1", "*/fused.*"), Pin("joined1", "*.stock")
    with pytest.raises(InfeasibleError, match="'apart1' fits its pins"):
        compile_model(model_file(MODEL), tmp_path / "none.vmfb", replace(config, pins=both))


def test_what_is_dumped_has_the_layers_apart(artifact: Artifact, dumped: Path) -> None:
    assert artifact.path.exists()
    (annotated,) = dumped.glob("*annotate*.mlir")
    text = annotated.read_text()
    assert text.count("sartor.candidates") == 4
    assert all(f'@"{name}"' in text for name in ("apart1", "joined1", "apart2", "joined2"))


def test_inspect_shows_what_is_fused(artifact: Artifact) -> None:
    shown = call("sartor", "inspect", artifact.path)
    assert shown.returncode == 0, shown.stderr
    assert "2 layers" in shown.stdout
    manifest = parsed(call("sartor", "inspect", artifact.path, "--json"))
    assert all(name in json.dumps(manifest) for name in FUSED)


def test_routines_show_candidates_of_pairs(model_file: ModelFile) -> None:
    layers = parsed(call("sartor", "routines", model_file(MODEL), "--json"))["layers"]
    pairs = {layer["layer"]: layer for layer in layers if layer["kind"] == "fused"}
    assert list(pairs) == FUSED
    for pair in pairs.values():
        assert any("/fused.separable{" in name for name in pair["candidates"])
    known = parsed(call("sartor", "routines", "--json"))["routines"]
    names = [(each["name"], each["type"]) for each in known]
    assert {("stock", None), ("separable", None), ("separable_blocked", None)} <= set(names)
    assert len(names) == len(set(names))
