"""What tables say about costs that were not measured."""

from __future__ import annotations

import math

from sartor.codegen.ir.schema import Schema
from sartor.codegen.linking.adapts import AdaptKind
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds
from sartor.tuning.transfers.times import TransferTimes


def test_adapts_that_move_nothing_are_free() -> None:
    nchw, nhwc = Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
    tables = Tables({}, {})
    assert adapt_seconds(AdaptKind("tensor<1x16x1x1xf32>", nchw, nhwc), tables) == 0
    moved = AdaptKind("tensor<1x16x8x8xf32>", nchw, nhwc)
    assert 0 < adapt_seconds(moved, tables) < 1e-4
    assert adapt_seconds(moved, Tables({}, {}, {moved: 0.5})) == 0.5


def test_a_crossing_takes_the_transfer_as_produced_and_the_conversion_where_it_arrives() -> None:
    there, here = Schema("vulkan", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
    kind = AdaptKind("tensor<1x16x8x8xf32>", there, here)
    moved = TransferTimes(((0, 1.0), (4096, 3.0)))
    converted = AdaptKind(kind.tensor, Schema("cpu", "f32", "nchw"), here)
    assert kind.local == converted
    tables = Tables({}, {}, {converted: 0.5}, transfers={("vulkan", "cpu"): moved})
    assert adapt_seconds(kind, tables) == 3.5
    assert adapt_seconds(AdaptKind(kind.tensor, here, there), tables) == math.inf
    same = AdaptKind(kind.tensor, there, Schema("cpu", "f32", "nchw"))
    assert same.local is None
    assert adapt_seconds(same, tables) == 3.0
