"""Measurements as CSV."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.table import COLUMNS, is_table, write_table


def _rows(*measurements: Measurement) -> list[dict[str, str]]:
    file = io.StringIO()
    assert write_table(file, measurements) == len(measurements)
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def _key(variant: str) -> MeasurementKey:
    return MeasurementKey("task", variant, "source", "machine, of 2 cores", 2, "versions", "cpu:host/0")


def test_a_row_has_the_parts_of_the_variant_and_a_summary_of_its_times() -> None:
    times = (4.0, 1.0, 2.0, 3.0, 5.0)
    (row,) = _rows(Measurement(_key("cpu:f32/conv2d.tiled{depth=4,rows=2}"), Status.OK, times, (8.0,), error=0.5))
    assert tuple(row) == COLUMNS
    assert [row[name] for name in ("device", "dtype", "operation", "routine")] == ["cpu", "f32", "conv2d", "tiled"]
    names = ("seconds", "least", "median", "upper_quartile", "samples", "stock_seconds", "error")
    assert [float(row[name]) for name in names] == [2, 1, 3, 4, 5, 8, 0.5]
    assert row["hardware"] == "machine, of 2 cores"


def test_failures_have_no_times() -> None:
    message = 'a "quoted"\nline'
    (row,) = _rows(Measurement(_key("plan:1"), Status.CRASHED, error=math.inf, message=message))
    assert (row["status"], row["seconds"], row["device"], row["error"]) == ("crashed", "", "", "inf")
    assert row["message"] == message


def test_no_cell_is_a_formula() -> None:
    (row,) = _rows(Measurement(_key("=HYPERLINK(1)"), Status.CRASHED, message="-1+1"))
    assert (row["variant"], row["message"]) == ("'=HYPERLINK(1)", "'-1+1")


def test_a_table_is_recognised(tmp_path: Path) -> None:
    with (tmp_path / "table.csv").open("w", encoding="utf-8", newline="") as file:
        write_table(file, [])
    assert is_table(tmp_path / "table.csv")
    (tmp_path / "other.csv").write_text("a,b\n")
    assert not is_table(tmp_path / "other.csv")
