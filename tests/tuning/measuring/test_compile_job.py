"""Cases divided to be compiled side by side, and joined to be compiled at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir import iree_compiler
from sartor.tuning.measuring.compile_job import batched, compile_cases, divided
from tests.tuning.measuring.test_tuner import ADD, BODY, case, variant


@pytest.mark.parametrize(
    ("count", "most", "sizes"), [(1, 4, [1]), (4, 4, [4]), (5, 4, [3, 2]), (9, 4, [3, 3, 3]), (11, 5, [4, 4, 3])]
)
def test_pieces_have_all_variants_once_in_order_and_about_as_many_each(count: int, most: int, sizes: list[int]) -> None:
    whole = case(*(variant(str(number), ADD) for number in range(count)))
    pieces = divided(whole, most)
    assert [len(piece.variants) for piece in pieces] == sizes
    assert [each for piece in pieces for each in piece.variants] == list(whole.variants)
    assert {piece.key for piece in pieces} == {whole.key}


@pytest.mark.parametrize(
    ("sizes", "count", "found"),
    [([1], 4, [[0]]), ([1, 1, 1], 2, [[0, 2], [1]]), ([1, 5, 2, 2], 2, [[1], [2, 3, 0]]), ([3, 3], 1, [[0, 1]])],
)
def test_batches_hold_each_case_once_and_cost_about_as_much(
    sizes: list[int], count: int, found: list[list[int]]
) -> None:
    cases = [case(*(variant(str(number), ADD) for number in range(size))) for size in sizes]
    assert batched(cases, count) == found


def test_a_case_that_does_not_compile_leaves_the_others_of_its_batch(tmp_path: Path) -> None:
    stock, bad = variant("stock", ADD), variant("no code", BODY.format(op="no_such_op"))
    cases = [case(stock, key="right"), case(stock, bad, key="half"), case(bad, key="wrong")]
    found = compile_cases(cases, Target.create("cpu"), tmp_path)
    assert [sorted(each.modules) for each in found] == [["stock"], ["stock"], []]
    assert [sorted(each.failures) for each in found] == [[], ["no code"], ["no code"]]
    assert "no_such_op" in found[2].failures["no code"]


def test_cases_that_compile_share_a_module(tmp_path: Path) -> None:
    stock, other = variant("stock", ADD), variant("other", BODY.format(op="subf"))
    first, second = compile_cases(
        [case(stock, key="one"), case(stock, other, key="two")], Target.create("cpu"), tmp_path
    )
    assert {*first.modules.values()} == {*second.modules.values()}
    assert [*tmp_path.iterdir()] == [*first.modules.values()]


def test_code_is_the_same_whether_passes_verify_it_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, target = [case(variant("stock", ADD))], Target.create("cpu")
    (found,) = compile_cases(cases, target, tmp_path)
    (path,) = found.modules.values()
    trusted = path.read_bytes()
    monkeypatch.setattr(iree_compiler, "_VERIFIED", "never")
    compile_cases(cases, target, tmp_path)
    assert path.read_bytes() == trusted
