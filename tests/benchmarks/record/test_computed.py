"""Computed tables: what is kept of them, and what documents show."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.record.computed import Computed, computed_table
from benchmarks.record.tables import COMPUTED, TABLES
from benchmarks.selection.recording import COMPARISONS, record
from sartor.errors import UsageError
from tests.benchmarks.record.made_results import MADE

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
