"""Draws fit the registers and keep to them when one number is changed."""

from __future__ import annotations

import math
from random import Random

from benchmarks.tile_space.draws import changed, drawn

LISTED = [
    {"lines": 1, "columns": 14, "vectors": 2, "row_groups": 14, "panel_groups": 1, "unroll": 1},
    {"lines": 2, "columns": 7, "vectors": 2, "row_groups": 1, "panel_groups": 80, "unroll": 2},
]


def test_draws_fit_the_registers_and_reach_beyond_the_list() -> None:
    rng = Random(1)
    found = [drawn(rng, LISTED) for _ in range(500)]
    assert all(each.keys() == LISTED[0].keys() and min(each.values()) >= 1 for each in found)
    assert all(math.prod(each[name] for name in ("lines", "columns", "vectors")) <= 32 for each in found)
    assert {each["vectors"] for each in found} > {1, 2, 3, 5, 8}
    assert max(each["panel_groups"] for each in found) > 80
    assert drawn(Random(7), LISTED) == drawn(Random(7), LISTED)


def test_a_change_is_of_one_number_unless_registers_run_out() -> None:
    rng = Random(2)
    given = {"lines": 1, "columns": 7, "vectors": 2, "row_groups": 14, "panel_groups": 1, "unroll": 1}
    for _ in range(200):
        other = changed(rng, given, LISTED)
        assert math.prod(other[name] for name in ("lines", "columns", "vectors")) <= 32
        outside = [name for name in ("row_groups", "panel_groups", "unroll") if other[name] != given[name]]
        assert len(outside) <= 1
