"""``make demo``, with a network that is tuned in seconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks import demo
from sartor.config import CompileConfig


def test_the_demo_compares_a_network_and_leaves_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_DIRECTORY", tmp_path / "demo")
    monkeypatch.setattr(demo, "_NETWORK", "lenet5")
    monkeypatch.setattr(demo, "_SECONDS", 0.5)
    monkeypatch.setattr(demo, "CompileConfig", partial(CompileConfig, time_budget=2.0))
    demo.main()
    said = capsys.readouterr().out
    assert "ONNX Runtime" in said
    assert "7 layers, one file" in said
    assert (tmp_path / "demo" / "lenet5.vmfb").stat().st_size > 100_000
