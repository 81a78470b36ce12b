"""Results: what is read back, which ratios count, what is computed of them, and the commands that they name."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.record.circumstances import circumstances, is_stale
from benchmarks.record.computed import Computed, computed_table
from benchmarks.record.neighbour import busy_neighbour
from benchmarks.record.results import read_result, read_results
from benchmarks.record.tables import COMPUTED, TABLES
from benchmarks.selection.recording import COMPARISONS, record
from sartor.errors import UsageError
from tests.benchmarks.record.made_results import MADE, entry, zoo_result


def test_a_result_is_read_as_it_was_saved(tmp_path: Path) -> None:
    result = zoo_result("net", entry([1.0, 1.1], [1.2, 1.3], layers="3 f32"), ort=entry([2.0], [2.2], error=math.nan))
    path = result.save(tmp_path)
    assert path == tmp_path / "zoo" / "net.1.json"
    again = read_result(path)
    assert again.entries["Sartor"] == result.entries["Sartor"]
    assert math.isnan(again.entries["ONNX Runtime"].error)
    assert again.circumstances == result.circumstances
    assert [each.network for each in read_results(tmp_path, "zoo")] == ["net"]


def test_a_ratio_is_the_median_of_ratios_within_processes() -> None:
    """Each process is as fast as it is: its times compare with each other only."""
    result = zoo_result("net", entry([1.0], [2.0], [4.0]), ort=entry([1.1], [2.6], [4.8]))
    assert result.ratio("ONNX Runtime", "Sartor") == pytest.approx(1.2)


@pytest.mark.parametrize("error", [1e-2, math.nan, math.inf])
def test_a_wrong_result_has_no_ratio(error: float) -> None:
    result = zoo_result("net", entry([1.0], error=error), ort=entry([2.0]))
    assert result.ratio("ONNX Runtime", "Sartor") is None
    assert result.ratio("OpenVINO", "Sartor") is None


@pytest.mark.parametrize("sample", [0.0, -1.0, math.inf])
def test_a_sample_that_is_no_time_is_refused(tmp_path: Path, sample: float) -> None:
    path = zoo_result("net", entry([1.0, sample])).save(tmp_path)
    with pytest.raises(UsageError, match="'Sartor' has no samples, or one that is not a time"):
        read_result(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = zoo_result("net", entry([1.0])).save(tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UsageError, match="is not a result"):
        read_result(path)


def test_a_measurement_names_its_commit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a clone of the repository"):
        circumstances(tmp_path)


def test_a_commit_that_is_not_known_is_stale() -> None:
    assert is_stale(Path.cwd(), "0123456789")


COLUMNS = ("network", "layers", "optimum, ms")
FOUND = Computed("solvers", MADE, "made times", COLUMNS, (("a", 3, 1.23456), ("b", 4, None)))


def test_a_table_says_of_what_and_by_which_code_it_is(tmp_path: Path) -> None:
    FOUND.save(tmp_path)
    shown = TABLES["solvers"](tmp_path)
    assert "| a | 3 | 1.23 |" in shown
    assert "| b | 4 |  |" in shown
    assert "at 0123456789 of made times, on a processor" in shown


def test_without_a_record_there_is_nothing(tmp_path: Path) -> None:
    assert computed_table("solvers", tmp_path) == "Nothing is recorded yet."


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    FOUND.save(tmp_path).write_text('{"name": "solvers"}', encoding="utf-8")
    with pytest.raises(UsageError, match="is no table"):
        computed_table("solvers", tmp_path)


def test_documents_may_have_each_comparison() -> None:
    assert set(COMPUTED) == set(COMPARISONS)


def test_what_is_no_comparison_or_has_no_tables_is_refused(tmp_path: Path) -> None:
    for name, said in (("nothing", "no comparison 'nothing'"), ("solvers", "no tables of a network")):
        with pytest.raises(UsageError, match=said):
            record(name, [], tmp_path, tmp_path)


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


def test_the_neighbour_computes_until_the_block_ends() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with busy_neighbour() as program, pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.5)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert program.returncode is not None
    assert after.ru_utime - before.ru_utime > 0.05
