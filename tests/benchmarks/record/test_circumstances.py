"""The command that results name, as anybody can repeat it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.record.circumstances import circumstances


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def test_commands_have_no_folders_of_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "one")
    folder = str(tmp_path / "build" / "a.json")
    given = [folder, "/elsewhere/b=c.onnx", "--json=/elsewhere/d=e.json", "models/f.onnx", "2", "-v"]
    monkeypatch.setattr(sys, "argv", ["record", "run", *given])
    command = circumstances(tmp_path).command.split()
    assert command[:4] == ["python", "-m", "benchmarks.record", "run"]
    assert command[4:] == ["build/a.json", "b=c.onnx", "--json=d=e.json", "models/f.onnx", "2", "-v"]
