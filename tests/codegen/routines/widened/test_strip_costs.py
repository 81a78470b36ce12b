"""The model of strips prefers tiles that were measured to be faster."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.isa.word_pairs import WIDE_WORD_PAIRS
from sartor.codegen.kernels.widened.tilings import StripCost
from sartor.codegen.mlir.kernel_machine import core_of

_CORE = core_of(Target.create("cpu", "x86-64-v3"))
_COST = StripCost(WIDE_WORD_PAIRS.group, WIDE_WORD_PAIRS.dtype, WIDE_WORD_PAIRS)
_Tile = tuple[int, int, int, int]


def _cycles(depth: int, channels: int, size: int, tile: _Tile) -> float:
    pixels = size * size
    sizes = {"batch": 1, "rows": size, "columns": size, "channels": channels, "depth": depth, "taps": 1, "stride": 1}
    sizes |= {"read": 4 * pixels * depth, "weights": 4 * depth * channels}
    band, columns, vectors, unroll = tile
    given = {"band": band, "columns": columns, "vectors": vectors, "unroll": unroll, "row_groups": 1, "panel_groups": 1}
    return _COST.cycles(sizes, given, _CORE)


@pytest.mark.parametrize(
    ("layer", "faster", "slower"),
    [
        # Filters of 2 MiB are read for each strip.
        ((2048, 512, 7), (49, 9, 1, 2), (9, 9, 1, 2)),
        # A tile of one vector loads a pixel for each product.
        ((64, 384, 14), (196, 4, 2, 2), (196, 9, 1, 2)),
        # The filters of a wide panel stay in the first-level cache, if there are few input channels.
        ((16, 96, 112), (1792, 1, 12, 1), (1791, 13, 1, 1)),
        ((960, 160, 7), (28, 4, 2, 2), (28, 1, 12, 1)),
    ],
)
def test_faster_tiles_cost_less(layer: tuple[int, int, int], faster: _Tile, slower: _Tile) -> None:
    assert _cycles(*layer, faster) < _cycles(*layer, slower)
