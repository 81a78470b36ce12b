"""Descriptors of plans and databases from before a routine was renamed."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.variants.renamed import RENAMED, renamed
from sartor.codegen.routine_registry import routine_names


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu:i8/matmul.block_panel_dots{columns=4,vectors=2}", "cpu:i8/matmul.block_dots{columns=4,vectors=2}"),
        ("cpu:f32/block.columns_of_panels{lanes=16,vectors=4}", "cpu:f32/block.columns_of_4{lanes=16}"),
        ("cpu:f32/block.columns_of_panels{vectors=4}", "cpu:f32/block.columns_of_4"),
        ("cpu:f32/block.columns_of_panels", "cpu:f32/block.columns_of_panels"),
        ("block_panel_dots", "block_dots"),
        ("cpu:f32/conv2d.nhwc{tile=4}", "cpu:f32/conv2d.nhwc{tile=4}"),
        ("", ""),
        ("{}", "{}"),
    ],
)
def test_an_old_name_is_read_as_the_new_one(old: str, new: str) -> None:
    assert renamed(old) == new
    assert renamed(new) == new


def test_new_names_exist_and_old_ones_do_not() -> None:
    assert not RENAMED.keys() & routine_names()
    new = {template.format(vectors=4) for template in RENAMED.values()}
    assert new <= routine_names()
