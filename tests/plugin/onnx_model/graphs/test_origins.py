"""Refusals name the user's node where a rewrite made another of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.names import described_nodes, naming_origins
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node


def unsimplified(_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("node 'a/b' (Conv) fails", "node 'a/b' (Conv) fails"),
        ("node 'a/b/c/d' (Mul) fails", "node 'a/b' (Conv), in its part 'c/d' (Mul), fails"),
        ("node 'a/b' (Reshape) fails", "node 'a/b' (Conv), in its part Reshape, fails"),
        ("node 'else/c' (Mul) fails", "node 'else/c' (Mul) fails"),
    ],
)
def test_the_owner_of_a_part_is_named(said: str, expected: str) -> None:
    built = model([node("Conv", ["x", "w"], ["y"], name="a/b")], [], ["y"])
    assert str(naming_origins(UnsupportedModelError(said), described_nodes(built))) == expected


def test_nodes_of_an_expanded_function_belong_to_its_call() -> None:
    angles = {name: np.zeros((2, 9, 8), np.float32) for name in ("cos", "sin")}
    call = node("RotaryEmbedding", ["x", *angles], ["y"], name="rotary", num_heads=2)
    built = model([call], [("x", (2, 3, 96), FLOAT)], ["y"], angles, opset=23)
    with pytest.raises(UnsupportedModelError, match=r"^node 'rotary' \(RotaryEmbedding\), in its part 'Mul"):
        prepare(built, simplifier=unsimplified)


@pytest.mark.parametrize(
    ("image", "block"), [([2**31 - 1] * 2, [1, 5]), ([5, 5], [2**40] * 2), ([5, 5], [0, 5]), ([5, 5], [2, 2])]
)
def test_columns_that_are_no_blocks_of_an_image_are_refused(image: Any, block: Any) -> None:
    sizes = {"image": np.array(image, np.int64), "block": np.array(block, np.int64)}
    built = model([node("Col2Im", ["x", *sizes], ["y"])], [("x", (1, 5, 5), FLOAT)], ["y"], sizes, opset=18)
    with pytest.raises(UnsupportedModelError, match=r"^node 'col2im' \(Col2Im\)"):
        prepare(built, simplifier=unsimplified)


def test_a_shape_may_be_taken_from_and_to_any_index() -> None:
    taken = node("Shape", ["x"], ["y"], start=-(2**63), end=2**40)
    built = model([taken], [("x", (2, 3), FLOAT)], [("y", None, INT64)])
    prepared = prepare(built, simplifier=unsimplified)
    assert prepared.outputs[0].shape == (2,)
