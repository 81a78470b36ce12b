"""Rows are cut into as few tiles as hold them, of nearly one height, and each row is in one of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import IndexArithmetic
from sartor.codegen.kernels.open_sizes.row_cut import CutParts, cut_rows

NO_BLOCK: Any = None
# Sizes that are known make no ops.
ASM = cast("Assembler", IndexArithmetic(NO_BLOCK))


def heights_by_row(parts: CutParts, most: int) -> dict[int, int]:
    """The height of the tile that begins at each row."""
    found = {}
    for height in range(most, 0, -1):
        is_used, (first, end) = parts.of_height(ASM, height)
        assert isinstance(first, int)
        assert isinstance(end, int)
        if is_used:
            assert first >= end or (end - first) % height == 0
            found.update(dict.fromkeys(range(first, end, height), height))
    return found


@pytest.mark.parametrize("most", [1, 2, 6, 7, 11])
def test_each_row_is_in_one_tile_and_heights_differ_by_one_at_most(most: int) -> None:
    for rows in range(80):
        cut = cut_rows(ASM, rows, most)
        assert cut.tiles == -(-rows // most)
        found = heights_by_row(cut.parts(ASM, (0, cut.tiles)), most)
        assert [row for first, height in found.items() for row in range(first, first + height)] == list(range(rows))
        assert max(found.values(), default=0) - min(found.values(), default=0) <= 1


@pytest.mark.parametrize(
    ("rows", "heights"), [(0, []), (1, [1]), (8, [4, 4]), (16, [6, 5, 5]), (64, [7] * 4 + [6] * 6)]
)
def test_rows_behind_whole_tiles_are_shared_by_all(rows: int, heights: list[int]) -> None:
    cut = cut_rows(ASM, rows, 7)
    assert list(heights_by_row(cut.parts(ASM, (0, cut.tiles)), 7).values()) == heights


def test_shares_of_the_tiles_are_parts_of_the_whole() -> None:
    for rows in (1, 16, 31, 64):
        cut = cut_rows(ASM, rows, 7)
        whole = heights_by_row(cut.parts(ASM, (0, cut.tiles)), 7)
        cuts = (0, 0, 1, 4, 5, 100)
        shares = [
            heights_by_row(cut.parts(ASM, (ASM.minimum(first, cut.tiles), ASM.minimum(end, cut.tiles))), 7)
            for first, end in pairwise(cuts)
        ]
        assert {first: height for share in shares for first, height in share.items()} == whole
        assert sum(map(len, shares)) == len(whole)
