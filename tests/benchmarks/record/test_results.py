"""Results: what is read back, which ratios count."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.record.circumstances import circumstances, is_stale
from benchmarks.record.results import read_result, read_results
from sartor.errors import UsageError
from tests.benchmarks.record.made_results import entry, zoo_result


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
