"""Elimination and enumeration against the sum of all tables written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.tuning.selection.elimination.elimination import DeadEndError, Factor, cheapest, eliminate

SIZES = (2, 3, 2, 3)


def _factors(seed: int, holes: bool) -> list[Factor]:
    rng = np.random.default_rng(seed)
    scopes = [(0,), (1,), (2,), (3,), (0, 2), (1, 2), (0, 1, 3)]
    factors = []
    for scope in scopes:
        table = rng.integers(0, 8, [SIZES[axis] for axis in scope]).astype(np.float64)
        if holes:
            table[rng.random(table.shape) < 0.2] = np.inf
        factors.append(Factor(scope, table, scope[-1]))
    return factors


def _all_sums(factors: list[Factor]) -> dict[tuple[int, ...], float]:
    sums = {}
    for values in product(*(range(size) for size in SIZES)):
        total = sum(float(f.table[tuple(values[axis] for axis in f.scope)]) for f in factors)
        if np.isfinite(total):
            sums[values] = total
    return sums


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(4)), holes=st.booleans(), k=st.integers(1, 40))
def test_any_order_finds_the_cheapest(seed: int, order: list[int], holes: bool, k: int) -> None:
    factors = _factors(seed, holes)
    sums = _all_sums(factors)
    if not sums:
        with pytest.raises(DeadEndError):
            eliminate(factors, order)
        return
    elimination = eliminate(factors, order)
    found = [tuple(values) for values in cheapest(elimination, [0] * 4, k)]
    assert elimination.minimum == min(sums.values())
    assert len(set(found)) == len(found)
    assert [sums[values] for values in found] == sorted(sums.values())[:k]


def test_dead_end_names_the_last_layer_of_the_table() -> None:
    free = Factor((0,), np.zeros(2), 0)
    blocked = Factor((0, 1), np.full((2, 2), np.inf), 7)
    with pytest.raises(DeadEndError) as caught:
        eliminate([free, blocked], [0, 1])
    assert caught.value.layer == 7
