"""What is published is right whatever was known before, and ONNX Runtime runs once for a model."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import CompileError
from sartor.frontend.imported_model import Origin
from sartor.pipeline import compile_model, replay_plan
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.profiling.reference_example import ReferenceExample
from sartor.progress import silent
from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.build_job import NetFiles
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.programming.infeasible import LimitError
from sartor.tuning.store.store import Store
from tests.importing import ModelFile

MODEL = "residual"
OLD = b"what was there before"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, model_file: ModelFile) -> tuple[Artifact, CompileConfig]:
    """A network whose best plan its database calls right."""
    folder = tmp_path_factory.mktemp("tuned")
    config = CompileConfig(threads=1, jobs=2, database=folder / "tuning.db")
    artifact = compile_model(model_file(MODEL), folder / "first.vmfb", config)
    assert not artifact.plan.unsplit
    return artifact, config


@pytest.fixture
def compiled(tuned: tuple[Artifact, CompileConfig], tmp_path: Path) -> tuple[Artifact, CompileConfig]:
    """The same with a copy of the database that a test may change."""
    artifact, config = tuned
    shutil.copyfile(config.database, tmp_path / "tuning.db")
    return artifact, replace(config, database=tmp_path / "tuning.db")


def plant_wrong_weights(monkeypatch: pytest.MonkeyPatch, *, unsplit: bool) -> None:
    """From now on networks of chosen variants are built with other weights than the model's; or all networks are."""
    job = Builder._job

    def wrong(self: Builder, recipe: Recipe, files: NetFiles) -> Mapping[str, Any]:
        found = dict(job(self, recipe, files))
        weights: Mapping[str, np.ndarray] = found["weights"]  # type: ignore[assignment]
        if unsplit or not recipe.plan.unsplit:
            found["weights"] = {
                name: weight * weight.dtype.type(1.5) if weight.dtype == np.float32 else weight
                for name, weight in weights.items()
            }
        return found

    monkeypatch.setattr(Builder, "_job", wrong)


def error_of(module: Path, model: Path) -> float:
    feeds = {"x": np.random.default_rng(5).normal(size=(1, 16, 6, 6)).astype(np.float32)}
    with Session(module, threads=1) as session:
        return relative_error(session.run(None, dict(feeds)), ReferenceModel(model, threads=1)(feeds))


def test_a_stale_verdict_is_found_out_and_the_next_network_is_published(
    compiled: tuple[Artifact, CompileConfig],
    model_file: ModelFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, config = compiled
    plant_wrong_weights(monkeypatch, unsplit=False)
    with caplog.at_level(logging.WARNING):
        again = compile_model(model_file(MODEL), tmp_path / "again.vmfb", config)
    assert "the next best is built" in caplog.text
    assert again.plan.unsplit
    assert error_of(again.path, model_file(MODEL)) < 1e-4
    assert again.error is not None
    assert again.error < 1e-4
    with Store.open(config.database) as store:
        nets = [measurement for measurement in store.measurements() if measurement.key.task.startswith("net:")]
    wrong = [net for net in nets if net.status is Status.WRONG_RESULT and not net.key.variant.endswith("verified")]
    assert wrong
    assert all(each.error is not None and each.error > 0.1 for each in wrong)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".vmfb") == ["again.vmfb"]


def test_where_everything_is_wrong_nothing_is_published(
    compiled: tuple[Artifact, CompileConfig], model_file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact, config = compiled
    output = tmp_path / "out" / "net.vmfb"
    output.parent.mkdir()
    output.write_bytes(OLD)
    plant_wrong_weights(monkeypatch, unsplit=True)
    with pytest.raises(CompileError, match="no plan is right: relative error"):
        compile_model(model_file(MODEL), output, config)
    with pytest.raises(CompileError, match="no plan is right: relative error"):
        replay_plan(model_file(MODEL), artifact.plan, output, config)
    assert output.read_bytes() == OLD
    assert [path.name for path in output.parent.iterdir()] == ["net.vmfb"]


def test_weights_beside_a_wrong_module_are_not_published_either(
    compiled: tuple[Artifact, CompileConfig], model_file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact, config = compiled
    folder = tmp_path / "out"
    folder.mkdir()
    plant_wrong_weights(monkeypatch, unsplit=True)
    apart = replace(config, external_weights=folder / "net.irpa")
    with pytest.raises(CompileError, match="no plan is right"):
        replay_plan(model_file(MODEL), artifact.plan, folder / "net.vmfb", apart)
    assert list(folder.iterdir()) == []


def test_stored_errors_are_judged_by_each_compilation_anew(
    compiled: tuple[Artifact, CompileConfig], model_file: ModelFile, tmp_path: Path
) -> None:
    artifact, config = compiled
    assert artifact.error is not None
    strict = replace(config, max_error=artifact.error * 1e-6)
    with pytest.raises(LimitError) as refused:
        compile_model(model_file(MODEL), tmp_path / "strict.vmfb", strict)
    nearest = refused.value.nearest[Quantity.ERROR]
    kept = compile_model(model_file(MODEL), tmp_path / "kept.vmfb", replace(config, max_error=nearest))
    assert kept.error is not None
    assert kept.error <= nearest
    again = compile_model(model_file(MODEL), tmp_path / "again.vmfb", config)
    assert again.error == artifact.error


def test_a_kept_module_that_is_wrong_is_compiled_again(
    compiled: tuple[Artifact, CompileConfig],
    model_file: ModelFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    artifact, config = compiled
    kept = KeptModules(tmp_path / "kept")
    monkeypatch.setattr(KeptModules, "of_user", lambda: kept)
    with monkeypatch.context() as patch:
        plant_wrong_weights(patch, unsplit=True)
        wrong = replay_plan(model_file(MODEL), artifact.plan, tmp_path / "wrong.vmfb", replace(config, max_error=1e6))
    assert len([*kept.folder.iterdir()]) == 1
    with caplog.at_level(logging.WARNING):
        again = replay_plan(model_file(MODEL), artifact.plan, tmp_path / "again.vmfb", config)
    assert "a kept module is wrong, and compiled again" in caplog.text
    assert again.path.read_bytes() == artifact.path.read_bytes() != wrong.path.read_bytes()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        third = replay_plan(model_file(MODEL), artifact.plan, tmp_path / "third.vmfb", config)
    assert "a kept module is wrong" not in caplog.text
    assert third.path.read_bytes() == artifact.path.read_bytes()


KEY = "a" * 80
FEEDS = {"x": np.ones((1, 4), np.float32)}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ONNX Runtime was asked to do, in place of which it only gives some numbers."""
    asked: list[str] = []

    def outputs(self: ReferenceRun, _: object) -> ReferenceOutputs:
        asked.append("run")
        return ReferenceOutputs((np.full(3, len(asked), np.float32),), (np.ones(3),), (), "ONNX Runtime")

    def begin(self: ReferenceRun, _: object) -> None:
        asked.append("begin")

    monkeypatch.setattr(ReferenceRun, "outputs", outputs)
    monkeypatch.setattr(ReferenceRun, "begin", begin)
    return asked


def example(kept: KeptValues, found: str, *, threads: int = 1) -> ReferenceExample:
    imported: Any = SimpleNamespace(
        path=Path("model.onnx"), prepared=Path("prepared.onnx"), bound=(), origin=Origin(b"", (), found)
    )
    samples: Any = SimpleNamespace(first=FEEDS, are_given=False)
    pool: Any = None
    return ReferenceExample(imported, samples, pool, silent, threads, narrow=False, kept=kept)


def test_kept_outputs_stand_for_those_of_the_same_import(tmp_path: Path, runs: list[str]) -> None:
    kept = KeptValues(tmp_path / "imports")
    first = example(kept, "")
    first.begin_ahead()
    value = first.value
    first.keep(KEY)
    assert runs == ["begin", "run"]
    again = example(kept, KEY)
    again.begin_ahead()
    assert again.known is not None
    np.testing.assert_array_equal(again.value.outputs[0], value.outputs[0])
    assert again.described == "ONNX Runtime"
    again.keep(KEY)
    assert runs == ["begin", "run"]
    for other in (example(kept, "b" * 80), example(kept, ""), example(kept, KEY, threads=2)):
        other.begin_ahead()
        assert other.known is None
        assert other.value is not None
    assert runs == ["begin", "run"] * 4


def test_what_was_not_computed_is_not_kept(tmp_path: Path, runs: list[str]) -> None:
    kept = KeptValues(tmp_path / "imports")
    example(kept, "").keep(KEY)
    assert not kept.may_have(KEY[:16])
    assert runs == []
