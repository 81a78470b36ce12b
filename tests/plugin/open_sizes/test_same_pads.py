"""Padding that differs between sizes is refused by the node, with a range that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import UnsupportedModelError
from sartor.open_sizes.same_pads import check_multiples, needed_multiples
from sartor.open_sizes.symbols import OpenDims
from sartor.settings.size_range import SizeRange
from tests.open_models import saved
from tests.tiny_models import Builder


def _needed(folder: Path, **last: Any) -> dict[str, int]:
    """What a model of two convolutions with strides needs, the last of which has these attributes."""
    build = Builder()
    first = build.op("Conv", "first", "x", build.weight(4, 3, 3, 3), strides=[2, 2], pads=[1] * 4)
    side = build.op("Conv", "side", "fixed", build.weight(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    build.op("Conv", "y", build.op("Relu", "r", first), build.weight(4, 4, 3, 3), **last)
    model = build.model([("x", [1, 3, 8, 8]), ("fixed", [1, 3, 8, 8])], [("y", [1]), (side, [1])], TensorProto.FLOAT)
    found = needed_multiples(saved(model, folder / "m.onnx"), frozenset({"x"}))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("border", ["SAME_UPPER", "SAME_LOWER"])
def test_strides_before_a_window_count_with_its_own(border: str, tmp_path: Path) -> None:
    assert _needed(tmp_path, strides=[2, 2], auto_pad=border) == {"node 'y' (Conv)": 4}


@pytest.mark.parametrize(
    "given",
    [{"auto_pad": "SAME_UPPER"}, {"strides": [2, 2], "auto_pad": "VALID"}, {"strides": [2, 2], "pads": [1] * 4}],
)
def test_other_padding_is_the_same_for_all_sizes(given: dict[str, Any], tmp_path: Path) -> None:
    assert _needed(tmp_path, **given) == {}


def test_the_message_has_a_range_that_works() -> None:
    needed = {"node 'y' (Conv)": 4}
    with pytest.raises(UnsupportedModelError, match=r"node 'y' .*multiples of 4, as 32\.\.96:4") as refused:
        check_multiples(needed, {"x": (Symbol("height", 30, 97),)})
    assert "30|97" in str(refused.value)
    check_multiples(needed, {"x": (Symbol("height", 32, 96, 4), Symbol("width", 32, 640, 32))})


def test_the_range_works_for_all_nodes() -> None:
    needed = {"node 'a' (Conv)": 2, "node 'b' (Conv)": 3}
    with pytest.raises(UnsupportedModelError, match=r"multiples of 6, as 12\.\.24:6"):
        check_multiples(needed, {"x": (Symbol("height", 10, 27),)})
    check_multiples(needed, {"x": (Symbol("height", 12, 24, 6),)})


def test_sides_are_dimensions_after_the_first() -> None:
    rows, sides = SizeRange(1, 8), SizeRange(32, 64, 32)
    dims = OpenDims({"x": ("n", 3, "h", "w"), "ids": ("n",)}, {"x": (rows, 3, sides, 48), "ids": (rows,)})
    assert dims.sides == {"x": (Symbol("h", 32, 64, 32),)}
