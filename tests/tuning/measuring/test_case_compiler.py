"""Into how many compilations a round of variants is divided."""

from __future__ import annotations

import pytest

from sartor.tuning.measuring.case_compiler import batch_count


@pytest.mark.parametrize("at_once", [1, 2, 3, 16])
@pytest.mark.parametrize("variants", [1, 3, 8, 12, 25, 48, 97, 120, 500])
def test_all_processes_end_together(variants: int, at_once: int) -> None:
    count = batch_count(variants, at_once)
    assert count <= at_once or count % at_once == 0
    assert variants <= 24 * count


@pytest.mark.parametrize(
    ("variants", "at_once", "count"),
    [(3, 2, 1), (8, 2, 2), (12, 2, 2), (16, 2, 4), (97, 2, 6), (120, 2, 6)],
)
def test_batches_are_neither_too_small_nor_too_large(variants: int, at_once: int, count: int) -> None:
    assert batch_count(variants, at_once) == count
