"""The table of networks on Vulkan follows from recorded results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import OURS, STOCK, STOCK_CPU, Row, geometric_mean, read_rows
from benchmarks.gpu_table import table
from sartor.errors import UsageError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu" / "llvmpipe.json"


def test_the_page_about_gpus_has_the_recorded_table() -> None:
    written = table(read_rows(RESULTS))
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert written in page


def test_stock_code_that_is_wrong_has_no_part_in_the_mean() -> None:
    right = Row("a", "vulkan:llvmpipe", 1.0, 1.0, {OURS: 1.0, STOCK: 4.0}, {OURS: 1e-6, STOCK: 1e-6}, 3)
    wrong = replace(right, network="b", milliseconds={OURS: 1.0, STOCK: 100.0}, errors={OURS: 1e-6, STOCK: 0.9})
    assert geometric_mean([right, wrong], STOCK) == 4.0
    assert "| b | 100 | 1 | wrong |" in table([right, wrong])


def test_a_plan_that_is_wrong_has_no_part_in_the_mean() -> None:
    right = Row("a", "vulkan:llvmpipe", 1.0, 1.0, {OURS: 1.0, STOCK: 4.0}, {OURS: 1e-6, STOCK: 1e-6}, 3)
    for error in (0.9, float("nan")):
        wrong = replace(right, network="b", milliseconds={OURS: 1.0, STOCK: 100.0}, errors={OURS: error, STOCK: 1e-6})
        assert geometric_mean([right, wrong], STOCK) == 4.0
        assert geometric_mean([wrong], STOCK) is None


def test_who_failed_is_named() -> None:
    row = Row("a", "vulkan:llvmpipe", 12.0, 34.0, {OURS: 1.0}, {OURS: 1e-6}, 3, failures={STOCK_CPU: "too large"})
    assert "| a |  | 1 |  |  |  | 1e-6 | 12 |  |" in table([row])
    assert "- a: iree on the CPU failed: too large" in table([row])
    assert "iree on the CPU does not take part: too large" in str(row)


def test_recorded_rows_have_samples_and_circumstances() -> None:
    for row in read_rows(RESULTS):
        assert row.made is not None
        assert row.made.command.startswith("python -m benchmarks.gpu ")
        assert row.made.commit in table([row])
        assert {name: min(each) * 1e3 for name, each in row.samples.items()} == row.milliseconds


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"network": "a"}]', encoding="utf-8")
    with pytest.raises(UsageError, match=r"rows\.json"):
        read_rows(tmp_path / "rows.json")


def test_launches_are_told_of_who_computed() -> None:
    row = Row(
        "a", "vulkan:llvmpipe", 1.0, 1.0, {OURS: 1.0, STOCK: 4.0}, {OURS: 1e-6, STOCK: 1e-6}, 3, {OURS: 5, STOCK: 9}
    )
    assert "5 launches by sartor, 9 launches by iree" in str(row)
    assert "launches" not in str(replace(row, launches={}))
