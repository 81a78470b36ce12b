"""Plans of several time budgets are compiled by commands of their own, and compared with the tuned one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import predicted
from benchmarks.contest import Contest, Timed, Timing
from benchmarks.predicted import compile_within, measure
from sartor.errors import CompileError

TIMES = {"0": 0.03, "10": 0.021, "tuned": 0.02, "ONNX Runtime": 0.06, "OpenVINO": 0.045}


def timed(contest: Contest, processes: int) -> list[Timed]:
    timings = {name: Timing((TIMES[name],), 0.0) for name in contest.rivals}
    return [Timed(timings, {})] * processes


def test_ratios_are_to_the_tuned_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(predicted, "compile_within", lambda model, output, budget, threads: TIMES[budget] * 100)
    monkeypatch.setattr(predicted, "time_in_processes", timed)
    rows = measure(tmp_path / "net.onnx", ["0", "10", "tuned"], tmp_path, 1)
    assert [each.budget for each in rows] == ["0", "10", "tuned"]
    assert [each.ratio for each in rows] == pytest.approx([1.5, 1.05, 1.0])
    assert [each.compilation for each in rows] == pytest.approx([3.0, 2.1, 2.0])
    assert all(math.isnan(each.peer) for each in rows)


def test_the_faster_peer_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(predicted, "compile_within", lambda model, output, budget, threads: TIMES[budget])
    monkeypatch.setattr(predicted, "time_in_processes", timed)
    (row,) = measure(tmp_path / "net.onnx", ["0"], tmp_path, 1, peers=True)
    assert row.peer == pytest.approx(1.5)
    assert math.isnan(row.ratio)


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(CompileError, match="does not compile"):
        compile_within(tmp_path / "net.onnx", tmp_path / "net.vmfb", "0", 1)
