"""The order of what the benchmark for GPUs runs, and what it leaves; the commands themselves are stood in for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cuda


class Commands:
    """Stands in for the programs: each writes the file that it is asked for."""

    def __init__(self, failing: str = "") -> None:
        self.seen: list[str] = []
        self.failing = failing

    def __call__(self, command: Sequence[str], timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
        name = Path(command[0]).name
        text = " ".join(command[1:])
        self.seen.append(f"{name} {text}")
        if self.failing and self.failing in self.seen[-1]:
            raise subprocess.TimeoutExpired(list(command), timeout)
        for place, each in enumerate(command):
            if each == "-o":
                Path(command[place + 1]).write_text("", encoding="utf-8")
        return subprocess.CompletedProcess(list(command), 0, json.dumps({"seconds": 1.0}), "")


def run(folder: Path, patch: pytest.MonkeyPatch, commands: Commands, seconds: float = 600) -> int:
    """Run the benchmark of one network."""
    patch.setattr(cuda, "write", lambda name, directory: directory / f"{name}.onnx")
    patch.setattr(subprocess, "run", commands)
    return cuda.main(["-o", str(folder), "--arch", "sm_90", "--seconds", str(seconds), "lenet5"])


def test_each_module_is_timed_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()
    assert run(tmp_path, monkeypatch, commands) == 0
    assert [each.partition(" ")[0] for each in commands.seen] == [
        *("nvidia-smi", "iree-import-onnx", "iree-compile", "sartor"),
        *("compile-to-vmfb", "sartor", "compile-to-vmfb", "sartor", "sartor"),
    ]
    assert "--iree-cuda-target=sm_89" in commands.seen[2]
    assert "--arch sm_90 --time-budget" in commands.seen[4]
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results == {"lenet5": {kind: {"seconds": 1.0} for kind in ("stock", "tuned", "f16")}}
    assert "exit code 0" in (tmp_path / "export.log").read_text(encoding="utf-8")


def test_what_takes_too_long_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, Commands("lenet5.tuned.vmfb --target")) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(results["lenet5"]) == ["stock", "f16"]
    assert "exit code 124" in (tmp_path / "lenet5.tuned.compile.log").read_text(encoding="utf-8")


def test_without_time_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()
    assert run(tmp_path, monkeypatch, commands, seconds=1) == 1
    assert [each.partition(" ")[0] for each in commands.seen] == ["nvidia-smi"]
