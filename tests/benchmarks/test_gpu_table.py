"""The table of networks on Vulkan follows from recorded results."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import gpu_table
from benchmarks.gpu import OURS, STOCK, STOCK_CPU, Row, geometric_mean, read_rows, write_rows
from benchmarks.gpu_table import table
from sartor.errors import UsageError
from tests.benchmarks.record.made_results import MADE

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu" / "llvmpipe.json"


def test_the_page_about_gpus_has_the_recorded_table() -> None:
    written = table(read_rows(RESULTS))
    page = (ROOT / "docs" / "records" / "gpu.md").read_text(encoding="utf-8")
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


def test_known_networks_have_a_mean_of_their_own() -> None:
    errors = {OURS: 1e-6, STOCK: 1e-6, STOCK_CPU: 1e-6}
    others = dict.fromkeys(gpu_table._KNOWN, (32.0, 1 / 3)) | {"resnet18": (2.0, 0.2), "vit_tiny": (1.0, 1.0)}
    rows = [
        Row(name, "vulkan:llvmpipe", 1.0, 1.0, {OURS: 1.0, STOCK: stock, STOCK_CPU: cpu}, errors, 3)
        for name, (stock, cpu) in others.items()
    ]
    wrong = replace(rows[0], errors={**errors, STOCK: 0.9})
    without = replace(rows[1], milliseconds={OURS: 1.0, STOCK: 32.0})
    shown = table([wrong, without, *rows[2:]])
    assert "it is 21.5x over 7, and 6 of the 7 with stock code on the CPU are within 4 times of that." in shown
    assert "it is" not in table([row for row in rows if row.network != "bert"])


def test_who_failed_is_named() -> None:
    row = Row("a", "vulkan:llvmpipe", 12.0, 34.0, {OURS: 1.0}, {OURS: 1e-6}, 3, failures={STOCK_CPU: "too large"})
    assert "| a |  | 1 |  |  |  | 1e-6 | 12 |  |" in table([row])
    assert "- a: iree on the CPU failed: too large" in table([row])
    assert "iree on the CPU does not take part: too large" in str(row)


def test_recorded_rows_have_samples_and_circumstances() -> None:
    rows = read_rows(RESULTS)
    assert len(rows) > 10
    for row in rows:
        assert row.made is not None
        assert row.made.command.startswith("python -m benchmarks.gpu ")
        assert row.made.commit in table([row])
        assert {name: min(sample) * 1e3 for name, sample in row.samples.items()} == row.milliseconds


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    for text in ("[", '[{"network": "a"}]'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=r"rows\.json"):
            read_rows(path)
    write_rows([Row("a", "vulkan:llvmpipe", 1.0, 1.0, {}, {}, 3)], tmp_path / "unmade.json")
    with pytest.raises(UsageError, match="how the rows of a were made"):
        read_rows(tmp_path / "unmade.json")


def test_rows_are_written_among_others(tmp_path: Path) -> None:
    """A network keeps its place; an error that is no number is read as it was written."""
    path = tmp_path / "results" / "rows.json"
    first, second = (Row(name, "vulkan:llvmpipe", 1.0, 1.0, {OURS: 1.0}, {OURS: 1e-6}, 3, made=MADE) for name in "ab")
    write_rows([first, second], path)
    again = replace(first, errors={OURS: math.inf}, milliseconds={OURS: 2.0})
    elsewhere = replace(first, target="vulkan:ampere")
    write_rows([again, elsewhere], path)
    assert read_rows(path) == [again, second, elsewhere]


def test_a_network_that_fails_is_named_and_has_no_times() -> None:
    row = Row("a", "vulkan:llvmpipe", 0.0, 0.0, {}, {}, 0, failures={OURS: "the device is lost"})
    assert "sartor does not take part: the device is lost" in str(row)
    assert "- a: sartor failed: the device is lost" in table([row])
    assert "| a |" not in table([row])
    assert table([]) == "Nothing is recorded yet."


def test_launches_are_told_of_who_computed() -> None:
    row = Row(
        "a", "vulkan:llvmpipe", 1.0, 1.0, {OURS: 1.0, STOCK: 4.0}, {OURS: 1e-6, STOCK: 1e-6}, 3, {OURS: 5, STOCK: 9}
    )
    assert "5 launches by sartor, 9 launches by iree" in str(row)
    assert "launches" not in str(replace(row, launches={}))
