"""The whole way from an ONNX file to a module, on a network of a few layers."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sartor.artifact import Artifact
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import InfeasibleError, SartorError, UnsupportedModelError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.pipeline import compile_model, replay_plan
from sartor.policies import Search
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf, ModelFile
from tests.tiny_models import Builder

MODEL = "lenet"
FOREIGN = "x86_64:x86-64-v3" if platform.machine() in ("aarch64", "arm64") else "aarch64:neoverse-n1"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> CompileConfig:
    return CompileConfig(threads=1, jobs=2, database=tmp_path_factory.mktemp("db") / "tuning.db")


@pytest.fixture(scope="module")
def artifact(config: CompileConfig, model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compile_model(model_file(MODEL), tmp_path_factory.mktemp("out") / "net.vmfb", config)


def check(imported: ImportedModel, model: Path, module: Path) -> None:
    with Session(module, threads=1) as session:
        outputs = session.run(None, imported.samples)
        assert [each.name for each in session.get_inputs()] == ["x"]
        assert [output.name for output in session.get_outputs()] == ["y"]
    assert relative_error(outputs, ReferenceModel(model, threads=1)(imported.samples)) < 1e-4


def test_the_module_is_right_and_measured(artifact: Artifact, imported_of: ImportedOf, model_file: ModelFile) -> None:
    check(imported_of(MODEL), model_file(MODEL), artifact.path)
    assert artifact.size == artifact.path.stat().st_size
    assert artifact.error is not None
    assert artifact.error < 1e-4
    assert artifact.plan.measured is not None
    known = [each for each in (artifact.plan.baseline, artifact.plan.stock_estimate) if each is not None]
    assert len(known) == 1
    assert artifact.plan.measured <= known[0]


@pytest.mark.parametrize("seconds", [0.0, 0.5, 12.0])
def test_however_little_time_there_is_a_plan_ships_that_is_right(
    config: CompileConfig,
    imported_of: ImportedOf,
    model_file: ModelFile,
    tmp_path: Path,
    seconds: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hurried = replace(config, database=tmp_path / "new.db", time_budget=seconds)
    found = compile_model(model_file(MODEL), tmp_path / "net.vmfb", hurried)
    check(imported_of(MODEL), model_file(MODEL), found.path)
    assert found.plan.measured is not None
    assert not found.plan.unsplit
    assert found.error is not None
    assert found.error < 1e-4
    if not seconds:
        assert not _measured(hurried)
    # Who asks for predictions is not told of them.
    assert "guesses" not in caplog.text if not seconds else seconds > 1 or "guesses" in caplog.text


def test_with_no_time_nothing_begins_but_the_reference(
    config: CompileConfig, model_file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    ahead = WorkerPool.ahead

    def watched(pool: WorkerPool, function: str, arguments: Mapping[str, Any], step: str, timeout: float) -> Any:
        begun.append(step)
        return ahead(pool, function, arguments, step, timeout)

    monkeypatch.setattr(WorkerPool, "ahead", watched)
    hurried = replace(config, database=tmp_path / "new.db", time_budget=0.0)
    compile_model(model_file(MODEL), tmp_path / "net.vmfb", hurried)
    assert begun == ["running ONNX Runtime"]


@pytest.fixture(scope="module")
def searched(
    config: CompileConfig, model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory
) -> tuple[CompileConfig, int, Plan]:
    """Settings of a full search with a database of its own, how many variants it measured, and its plan."""
    folder = tmp_path_factory.mktemp("full")
    full = replace(config, database=folder / "full.db", search=Search.FULL)
    plan = compile_model(model_file(MODEL), folder / "net.vmfb", full).plan
    return full, _measured(full), plan


def _measured(config: CompileConfig) -> int:
    """How many variants have been compiled and run."""
    with Store.open_to_read(config.database) as store:
        return sum(1 for measurement in store.measurements() if measurement.facts)


def test_a_full_search_measures_all(
    searched: tuple[CompileConfig, int, Plan], config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    chosen = replace(config, database=tmp_path / "model.db", search=Search.MODEL)
    compile_model(model_file(MODEL), tmp_path / "net.vmfb", chosen)
    _, measured, _ = searched
    assert _measured(chosen) < measured


def test_a_stock_model_that_ran_is_compared_by_every_later_search(
    searched: tuple[CompileConfig, int, Plan], model_file: ModelFile, tmp_path: Path
) -> None:
    full, _, first = searched
    later = compile_model(model_file(MODEL), tmp_path / "net.vmfb", replace(full, search=Search.MODEL)).plan
    for plan in (first, later):
        assert plan.stock_estimate is None
        assert plan.baseline is not None
        assert plan.measured is not None
        assert plan.measured <= plan.baseline


def test_the_module_carries_its_plan_without_times(artifact: Artifact) -> None:
    with Session(artifact.path, threads=1) as session:
        assert session.manifest is not None
        inside = Plan.from_json(session.manifest.plan, "the module")
    assert inside == artifact.plan.unmeasured()


def test_replaying_the_plan_gives_the_same_bytes(config: CompileConfig, model_file: ModelFile, tmp_path: Path) -> None:
    # The unsplit model is left out: where IREE packs weights itself, it leaves what pads them to chance.
    split = replace(config, pins=(Pin("*", "*"),))
    artifact = compile_model(model_file(MODEL), tmp_path / "first.vmfb", split)
    artifact.plan.save(tmp_path / "plan.json")
    again = replay_plan(model_file(MODEL), Plan.load(tmp_path / "plan.json"), tmp_path / "again.vmfb", config)
    assert again.path.read_bytes() == artifact.path.read_bytes()
    assert again.plan == artifact.plan
    assert again.error == artifact.error


def test_a_replayed_module_is_checked(
    artifact: Artifact, config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    assert artifact.error, "nothing would be too large"
    with pytest.raises(InfeasibleError, match=r"error limit of 0\.0 cannot be met: any plan that was run needs"):
        replay_plan(model_file(MODEL), artifact.plan, tmp_path / "net.vmfb", replace(config, max_error=0.0))
    assert not (tmp_path / "net.vmfb").exists()


def test_who_replays_a_plan_is_told_what_is_not_checked(
    config: CompileConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ONNX Runtime refuses names that are not unique, so that a copy with others stands in; of zeros all is zero."""
    builder = Builder()
    builder.op("Relu", "y", builder.op("MatMul", "product", "x", builder.weight(16, 8)))
    named = builder.model([("x", (1, 16))], [("y", (1, 8))])
    for node in named.graph.node:
        node.name = "same"
    onnx.save(named, tmp_path / "net.onnx")
    np.save(tmp_path / "zeros.npy", np.zeros((1, 16), np.float32))
    stock = replace(config, pins=(Pin("*", "*.stock"),), calibration=tmp_path / "zeros.npy")
    compiled = compile_model(tmp_path / "net.onnx", tmp_path / "net.vmfb", stock)
    plan = compiled.plan
    assert (compiled.reference, compiled.unvouched) == ("ONNX Runtime", ())
    assert "with the rewritten model alone" not in caplog.text
    caplog.clear()
    replayed = replay_plan(tmp_path / "net.onnx", plan, tmp_path / "again.vmfb", replace(stock, pins=()))
    assert replayed.unchecked == ("y",)
    assert "output 'y' is not checked" in caplog.text
    assert replayed.reference == "ONNX Runtime"
    again = compile_model(tmp_path / "net.onnx", tmp_path / "net.vmfb", stock)
    assert again.reference == "ONNX Runtime", "all runs are in the database"


def test_weights_beside_the_module(
    artifact: Artifact, config: CompileConfig, imported_of: ImportedOf, model_file: ModelFile, tmp_path: Path
) -> None:
    apart = replace(config, external_weights=tmp_path / "weights.irpa")
    shipped = replay_plan(model_file(MODEL), artifact.plan, tmp_path / "net.vmfb", apart)
    assert shipped.weights == tmp_path / "weights.irpa"
    assert shipped.size < artifact.size
    check(imported_of(MODEL), model_file(MODEL), shipped.path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.vmfb", "weights.irpa"]
    content = bytearray(shipped.weights.read_bytes())
    content[-1] ^= 1
    shipped.weights.write_bytes(content)
    with pytest.raises(UsageError, match=r"weights\.irpa' are damaged, or those of another module"):
        Session(shipped.path)


def test_weights_in_another_folder_are_refused_first(config: CompileConfig, tmp_path: Path) -> None:
    apart = replace(config, external_weights=tmp_path / "weights.irpa")
    with pytest.raises(UsageError, match="must lie in the folder of"):
        compile_model(tmp_path / "none.onnx", tmp_path / "out" / "net.vmfb", apart)


def test_an_output_may_depend_on_no_input(config: CompileConfig, model_file: ModelFile, tmp_path: Path) -> None:
    for pins in ((), (Pin("*", "*"),)):
        compiled = compile_model(model_file("constant_output"), tmp_path / "net.vmfb", replace(config, pins=pins))
        assert compiled.error is not None
        assert compiled.error < config.allowed_error


def test_a_failure_leaves_the_old_output_alone(config: CompileConfig, model_file: ModelFile, tmp_path: Path) -> None:
    output, broken = tmp_path / "net.vmfb", tmp_path / "broken.onnx"
    output.write_bytes(b"old")
    broken.write_bytes(b"no model")
    with pytest.raises(SartorError):
        compile_model(broken, output, config)
    with pytest.raises(UnsupportedModelError, match="the model computes nothing: its outputs 'y' are inputs"):
        compile_model(model_file("nothing_computed"), output, config)
    assert output.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.onnx", "net.vmfb"]


def test_pins_that_leave_nothing_are_infeasible(
    artifact: Artifact, config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    assert artifact.path.exists(), "the layers are measured already"
    with pytest.raises(InfeasibleError, match="'conv1'"):
        compile_model(model_file(MODEL), tmp_path / "net.vmfb", replace(config, pins=(Pin("conv1", "*attention*"),)))
    assert not (tmp_path / "net.vmfb").exists()


def test_a_plan_for_another_model_is_refused(
    artifact: Artifact, config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="another model"):
        replay_plan(model_file("softmax"), artifact.plan, tmp_path / "net.vmfb", config)
    with pytest.raises(UsageError, match="not cpu:host; pass --target cuda --arch sm_80"):
        replay_plan(model_file(MODEL), replace(artifact.plan, target="cuda:sm_80"), tmp_path / "net.vmfb", config)


def test_outputs_that_cannot_be_written_are_refused_first(config: CompileConfig, tmp_path: Path) -> None:
    for output in (tmp_path, tmp_path / "absent" / "net.vmfb"):
        with pytest.raises(UsageError, match=r"cannot be written|is a directory"):
            compile_model(tmp_path / "no model", output, config)


def test_code_that_does_not_run_here_is_made_by_predicted_costs(
    config: CompileConfig, model_file: ModelFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = replace(config, target=Target.create("cpu", FOREIGN))
    artifact = compile_model(model_file(MODEL), tmp_path / "net.vmfb", foreign)
    assert f"this machine does not run cpu:{FOREIGN} code: compiled, but neither tuned nor checked" in caplog.text
    assert (artifact.error, artifact.plan.measured) == (None, None)
    assert artifact.plan.basis == f"predicted by the cost model for {FOREIGN}, nothing was measured"
    assert artifact.plan.basis in caplog.text
    assert read_manifest(artifact.path).plan["basis"] == artifact.plan.basis
    assert (artifact.plan.optimal, bool(artifact.plan.predicted)) == (True, True)
    variants = {layer.layer: layer.variant.partition(".")[2].partition("{")[0] for layer in artifact.plan.layers}
    assert (variants["conv1"], variants["conv2"], variants["dense2"]) == ("direct", "direct", "product")
    again = replay_plan(model_file(MODEL), artifact.plan, tmp_path / "again.vmfb", foreign)
    assert again.path.read_bytes() == artifact.path.read_bytes()
    assert "compiled, but not checked" in caplog.text


def test_pins_hold_for_code_that_does_not_run_here(
    config: CompileConfig, model_file: ModelFile, tmp_path: Path
) -> None:
    pinned = replace(config, target=Target.create("cpu", FOREIGN), pins=(Pin("conv1", "*.stock"),))
    plan = compile_model(model_file(MODEL), tmp_path / "net.vmfb", pinned).plan
    assert next(layer for layer in plan.layers if layer.layer == "conv1").variant.endswith(".stock")


def test_samples_are_what_the_model_takes(imported_of: ImportedOf) -> None:
    imported = imported_of(MODEL)
    assert {name: (sample.shape, sample.dtype) for name, sample in imported.samples.items()} == {
        "x": ((1, 1, 8, 8), np.dtype(np.float32))
    }
