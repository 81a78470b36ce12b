"""Compiling for GPUs that are not here: the plan has kernels for them by the cost model, or what was measured there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from sartor.cli.apps import app
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.frontend.target_check import runs_here
from sartor.pipeline import compile_model
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.plugin.test_cuda_plan import network
from tests.tiny_models import Builder

pytestmark = pytest.mark.vulkan

GPU = "NVIDIA GeForce RTX 3090"


def _config(architecture: str, database: Path) -> CompileConfig:
    target = Target.create("vulkan", architecture)
    if runs_here(target):
        pytest.skip(f"this machine has a GPU for {architecture}, so layers are measured")
    return CompileConfig(target=target, jobs=1, database=database)


@pytest.mark.parametrize("architecture", ["ampere", "ada", "rdna3", "valhall4"])
def test_a_network_is_planned_by_the_model(architecture: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(network(), model)
    plan = compile_model(model, tmp_path / "net.vmfb", _config(architecture, tmp_path / "tuning.db")).plan
    assert plan.basis == f"predicted by the cost model for {architecture}, nothing was measured"
    assert plan.basis in caplog.text
    found = {layer.layer: layer.variant.partition("/")[2].partition("{")[0] for layer in plan.layers}
    assert found["wide"] == "conv2d.direct"
    assert found["deep"] == "depthwise.window"


def test_a_plan_follows_from_an_imported_database_alone(tmp_path: Path) -> None:
    builder = Builder()
    product = builder.op("MatMul", "y", "x", builder.weight(256, 64))
    model, there, here = tmp_path / "net.onnx", tmp_path / "there.db", tmp_path / "here.db"
    onnx.save(builder.model([("x", (64, 256))], [(product, (64, 64))]), model)
    config = _config("ampere", here)
    predicted = compile_model(model, tmp_path / "predicted.vmfb", config).plan.layers[0].variant
    other = _measured_elsewhere(model, config, there, besides=predicted)
    file = str(tmp_path / "tuning.jsonl")
    assert CliRunner().invoke(app, ["db", "export", file, "--tuning-db", str(there)]).exit_code == 0
    assert CliRunner().invoke(app, ["db", "import", file, "--tuning-db", str(here)]).exit_code == 0
    plan = compile_model(model, tmp_path / "measured.vmfb", config).plan
    assert plan.layers[0].variant == other != predicted
    assert plan.basis == f"measured on another machine, {GPU}"


def _measured_elsewhere(model: Path, config: CompileConfig, database: Path, besides: str) -> str:
    """Note in a database that a GPU ran all variants of the only layer, and another one than ``besides`` fastest."""
    imported = imported_model(model)
    (case,) = tuned_cases(imported.graph, find_candidates(imported, config.planning, everything=False).variants)
    fastest = next(each.descriptor for each in case.variants if each.descriptor != besides)
    with Store.open(database) as store, WorkerPool(1) as pool:
        tuner = make_tuner(store, pool, config.planning.target, silent)
        for variant in case.variants:
            seconds = 1e-6 if variant.descriptor == fastest else 1e-3
            key = replace(tuner.key(case, variant.descriptor), hardware=GPU)
            store.put(Measurement(key, Status.OK, (seconds,), facts=case.facts))
    return fastest
