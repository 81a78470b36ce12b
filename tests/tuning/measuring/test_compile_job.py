"""Cases divided to be compiled side by side."""

from __future__ import annotations

import pytest

from sartor.tuning.measuring.compile_job import divided
from tests.tuning.measuring.test_tuner import ADD, case, variant


@pytest.mark.parametrize(
    ("count", "most", "sizes"), [(1, 4, [1]), (4, 4, [4]), (5, 4, [3, 2]), (9, 4, [3, 3, 3]), (11, 5, [4, 4, 3])]
)
def test_pieces_have_all_variants_once_in_order_and_about_as_many_each(count: int, most: int, sizes: list[int]) -> None:
    whole = case(*(variant(str(number), ADD) for number in range(count)))
    pieces = divided(whole, most)
    assert [len(each.variants) for each in pieces] == sizes
    assert [each for piece in pieces for each in piece.variants] == list(whole.variants)
    assert {each.key for each in pieces} == {whole.key}
