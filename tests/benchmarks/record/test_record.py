"""The command that records, on a network that is tuned in seconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from benchmarks.gpu import Row
from benchmarks.record import __main__ as record
from benchmarks.record.computed import Computed
from benchmarks.record.experiments import OURS
from benchmarks.record.results import Result, read_results
from benchmarks.record.tables import LLVMPIPE
from benchmarks.record.task import Effort, Task
from benchmarks.record.tuning import AGAIN, COLD, measure_tuning
from benchmarks.zoo import write
from tests.benchmarks.record.made_results import MADE


def test_a_network_is_measured_and_kept_with_its_circumstances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(record, "circumstances", lambda _: MADE)
    settings = ["--seconds", "0.2", "--processes", "1", "--directory", str(tmp_path / "made")]
    done = CliRunner().invoke(record.app, ["run", "zoo", "lenet5", *settings], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (result,) = read_results(tmp_path / "results", "zoo")
    assert (result.network, result.threads, result.circumstances) == ("lenet5", 1, MADE)
    assert result.entries[OURS].is_right
    assert len(result.entries[OURS].samples) == 1
    assert float(result.entries[OURS].facts["megabytes"]) > 0


def test_a_cold_compilation_is_timed_with_nothing_kept(tmp_path: Path) -> None:
    """The second one finds what the first left, and no user's cache folder takes part."""
    entries, failures = measure_tuning(Task(write("lenet5", tmp_path), 1, tmp_path, Effort(processes=1)))
    assert not failures
    assert 0 < entries[AGAIN].seconds < entries[COLD].seconds
    assert list(tmp_path.iterdir()) == [tmp_path / "lenet5.onnx"]


def test_a_cold_compilation_has_a_cache_of_its_own_in_a_relative_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache folder that is named relatively is ignored, and the user's own one is taken."""
    caches: list[Path] = []

    def ran(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        caches.append(Path(env["XDG_CACHE_HOME"]))
        return subprocess.CompletedProcess(command, 0, '{"measured_ms": 1.0}', "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", ran)
    entries, failures = measure_tuning(Task(Path("model.onnx"), 1, Path(), Effort(processes=1)))
    assert set(entries) == {COLD, AGAIN}
    assert not failures
    assert all(each.is_absolute() for each in caches)


def test_a_compilation_that_fails_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    entries, failures = measure_tuning(Task(broken, 1, tmp_path, Effort(processes=1)))
    assert not entries
    assert "exit code 3" in failures[COLD]


def test_everything_of_other_code_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    assert CliRunner().invoke(record.app, ["stale"]).output == ""
    Result("zoo", "a", 2, MADE, {}, {}).save(tmp_path)
    Computed("solvers", MADE, "made times", ("network",), (("a",),)).save(tmp_path)
    row = Row("a", "vulkan:llvmpipe", 1.0, 1.0, {}, {}, 3, made=MADE)
    (tmp_path / LLVMPIPE).parent.mkdir()
    (tmp_path / LLVMPIPE).write_bytes(TypeAdapter(list[Row]).dump_json([row]))
    done = CliRunner().invoke(record.app, ["stale"], catch_exceptions=False)
    assert done.output.splitlines() == [
        f"{MADE.date} {MADE.commit} {what}" for what in ("zoo a, 2 threads", "vulkan:llvmpipe a", "table 'solvers'")
    ]


def test_the_documents_are_as_the_results_say() -> None:
    done = CliRunner().invoke(record.app, ["write", "--check"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
