"""What ``sartor inspect`` shows of a network on two devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.cli.commands import inspect as command
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.manifest import Manifest
from tests.plugin.planning.two_devices import CONFIG, selected, transfers


def test_segments_and_transfers_are_shown(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = imported_of("lenet")
    manifest = Manifest.from_json(selected(imported, transfers(2e-5, 3e-5)).manifest(imported, CONFIG.header))
    monkeypatch.setattr(command, "read_manifest", lambda _: manifest)
    command.inspect(Path("lenet.vmfb"))
    shown = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["plan", "7 layers, 1 adapts, 4 transfers"] in lines
    assert ["main_graph$1", "cpu", "conv1:0", "pool1:0: float32[1, 4, 4, 16]"] in lines
    assert ["pool1", "conv2", "cpu:f32@nhwc -> vulkan:f32@nchw", "0.021"] in lines
    assert ["pool2", "dense1", "cpu:f32@nhwc -> cpu:f32@nchw", "0.001"] in lines
