"""Models that keep something between calls are such as ONNX Runtime runs, and what they do is told by a table."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnxruntime
import pytest
from typer.testing import CliRunner

from benchmarks.by_default import Shown, app, read, row
from benchmarks.state_models import STATE_MODELS

# Networks of the zoo have tests of their own.
_ZOO = ("vad_stream", "enhancer_stream", "vits", "vits_text", "vits_voice", "whisper_encoder", "whisper_decoder")


def test_the_operators_are_known_to_onnx_runtime() -> None:
    for name, make in STATE_MODELS.items():
        if name not in _ZOO:
            assert onnxruntime.InferenceSession(make().SerializeToString()).get_outputs(), name


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!{sys.executable}\nimport sys\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="programs are scripts")
def test_what_failed_is_told_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "compile-to-vmfb", "sys.exit('error: no' if 'bad' in sys.argv[1] else 0)")
    _program(tmp_path / "sartor", "sys.exit('wrong' if 'off' in sys.argv[2] else 0)")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for name in ("bad", "good", "off"):
        (tmp_path / f"{name}.onnx").touch()
    results = tmp_path / "results.json"
    told = CliRunner().invoke(app, ["run", str(tmp_path), "--results", str(results)])
    assert told.exit_code == 1
    found = {name: (each.compiles, each.agrees, each.said) for name, each in read(results).items()}
    assert found == {"bad": (False, False, "error: no"), "good": (True, True, ""), "off": (True, False, "wrong")}
    assert CliRunner().invoke(app, ["run", str(tmp_path), "--results", str(results)]).stdout == ""
    assert "1 of 3 compile and agree" in CliRunner().invoke(app, ["show", "--results", str(results)]).stdout


def test_a_row_has_what_failed() -> None:
    assert row("a", Shown(True, False, 7.4, "x | y")) == "| a | yes | x / y | 7 |"
    assert row("b", Shown(True, True, 0.6)) == "| b | yes | yes | 1 |"
