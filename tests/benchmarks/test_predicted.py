"""Commands that compile and compare: plans of several budgets, the demonstration, and advice that is followed."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest

from benchmarks import demo, predicted
from benchmarks.advice.follow import End, options_of, refusals
from benchmarks.contest import Contest, Timed, Timing
from benchmarks.predicted import compile_within, measure
from sartor.config import CompileConfig
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


# Of models of all families that are refused once sizes and constants are freed, as most are.
_REFUSED = 12


def test_advice_for_random_models_works_or_says_what_it_lacks() -> None:
    results = [*refusals(_REFUSED)]
    assert results[-1].seed < 2 * _REFUSED
    assert {result.end for result in results} <= {End.WORKS, End.OWN}, results
    assert sum(result.end is End.WORKS for result in results) > len(results) // 2


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("bind it with --shape x=1,8 --shape 'a b=2'", [("--shape", "x=1,8"), ("--shape", "a b=2")]),
        ("fix them with --bind s=1,2, or with other values", [("--bind", "s=1,2")]),
        ("export the model again", []),
    ],
)
def test_options_of_messages(message: str, options: list[tuple[str, str]]) -> None:
    assert options_of(message) == options
