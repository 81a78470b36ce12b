"""Compilations that are killed; ``python -m tools.killing`` does it at length and at random."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.importing import ModelFile
from tools.killing import BrokenPromiseError, Scene, kill_at


def test_four_that_share_a_database_lose_nothing_and_leave_nothing(model_file: ModelFile, tmp_path: Path) -> None:
    scene = Scene.made(model_file("residual"), tmp_path / "scene")
    kill_at(scene, (0.7, 2.1, 3.4, 6.0))
    scene.finish()
    assert scene.committed()
    assert scene.output(0).exists()


def test_what_is_lost_or_left_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.made(tmp_path / "absent.onnx", tmp_path / "scene")
    with pytest.raises(BrokenPromiseError, match="absent"):
        scene.finish()
    known = iter([{"a", "b"}, {"b"}])
    monkeypatch.setattr(Scene, "committed", lambda _: next(known))
    with pytest.raises(BrokenPromiseError, match="lost 1 measurements"):
        kill_at(scene, (0.0,))
    monkeypatch.setattr(Scene, "start", lambda *_: subprocess.Popen([sys.executable, "-c", ""], stderr=subprocess.PIPE))
    (scene.temporary / "sartor-0123456789abcdef").mkdir()
    scene.finish()
    (scene.temporary / "sartor-0123456789abcdef" / "weights.bin").touch()
    with pytest.raises(BrokenPromiseError, match="left sartor-0123456789abcdef"):
        scene.finish()
