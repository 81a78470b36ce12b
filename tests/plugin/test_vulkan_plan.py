"""Compiling for GPUs that are not here: the plan has kernels for them by the cost model, or what was measured there."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.frontend.target_check import runs_here
from sartor.pipeline import compile_model
from tests.plugin.test_cuda_plan import check_imported_database, network

pytestmark = pytest.mark.vulkan


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
    check_imported_database(_config("ampere", tmp_path / "here.db"), "NVIDIA GeForce RTX 3090", "", tmp_path)
