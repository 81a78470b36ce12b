"""Tests of how work is shared out among workgroups."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.loops.partition import (
    largest_range,
    many_workgroups,
    many_workgroups_of_two,
    workgroup_range,
)
from sartor.codegen.mlir.iree_compiler import ir, shared_context

extents = st.integers(1, 3000)


def cut(extent: int, shares: int) -> list[tuple[int, int]]:
    """All shares as numbers: known indices fold."""
    with shared_context() as context, ir.Location.unknown(context):
        asm = Assembler(ir.Module.create().body, 16)
        found = [workgroup_range(asm, extent, shares, index) for index in range(shares)]
    return [(first, end) for first, end in found if isinstance(first, int) and isinstance(end, int)]


@settings(deadline=None)
@given(extents, st.integers(1, 60))
def test_shares_cover_the_extent_once(extent: int, shares: int) -> None:
    found = cut(extent, shares)
    assert len(found) == shares
    assert found[0][0] == 0
    assert found[-1][1] == extent
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    assert all(first <= end for first, end in found)


@settings(deadline=None)
@given(extents, st.integers(1, 60))
def test_the_largest_share_is_known(extent: int, shares: int) -> None:
    assert largest_range(extent, shares) == max(end - first for first, end in cut(extent, shares))


def test_the_first_share_may_not_be_the_largest() -> None:
    assert [end - first for first, end in cut(7, 7)] == [1, 2, 1, 1, 1, 0, 1]
    assert largest_range(7, 7) == 2


@settings(deadline=None)
@given(extents, st.integers(1, 60))
def test_shares_shrink_but_for_rounding(extent: int, shares: int) -> None:
    sizes = [end - first for first, end in cut(extent, shares)]
    assert all(one >= other - 1 for one, other in itertools.pairwise(sizes))


@settings(deadline=None)
@given(extents, st.integers(2, 16))
def test_the_last_share_is_small(extent: int, threads: int) -> None:
    shares = many_workgroups(extent, threads)
    first, end = cut(extent, shares)[-1]
    assert end - first <= max(1, extent / (10 * threads))


@settings(deadline=None)
@given(extents, st.integers(1, 64))
def test_workers_take_one_share_at_a_time(extent: int, threads: int) -> None:
    """IREE's take eight at a time where there are eight or more for each."""
    assert 1 <= many_workgroups(extent, threads) < 8 * max(threads, 2)


@settings(deadline=None)
@given(extents, extents, st.integers(1, 64))
def test_a_second_extent_makes_up_for_a_small_first_one(first: int, second: int, threads: int) -> None:
    one, other = many_workgroups_of_two(first, second, threads)
    assert 1 <= one <= first
    assert 1 <= other <= second
    assert one * other < 8 * max(threads, 2)
    assert other == second or 2 * one * other >= many_workgroups(first * second, threads)
