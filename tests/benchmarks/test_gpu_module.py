"""A module on a device beside ONNX Runtime; a CPU takes the GPU's place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu_module, gpu_peers
from benchmarks.cuda import stock_signature
from benchmarks.peers import build_stock
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from tests.importing import ModelFile


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_peers.measured, "__defaults__", (0.0,))


def test_a_module_is_timed_and_compared(
    model_file: ModelFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "m.vmfb"
    compile_model(
        model_file("residual"), module, CompileConfig(threads=1, database=tmp_path / "t.db", time_budget=0.01)
    )
    assert gpu_module.main([str(model_file("residual")), str(module), "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calls"] >= 20
    assert 0 < found["least"] <= found["median"]
    assert found["error"] < 1e-5


def test_a_device_that_is_not_there_is_told(
    model_file: ModelFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = build_stock(model_file("residual"), tmp_path).module
    given = [str(model_file("residual")), str(module), "--signature", stock_signature(model_file("residual"))]
    assert gpu_module.main([*given[:2], "cuda:99", *given[2:]]) == 1
    assert "cuda" in capsys.readouterr().err
