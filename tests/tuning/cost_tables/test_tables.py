"""What tables say about costs that were not measured."""

from __future__ import annotations

from sartor.codegen.ir.schema import Schema
from sartor.codegen.linking.adapts import AdaptKind
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds


def test_adapts_that_move_nothing_are_free() -> None:
    nchw, nhwc = Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
    tables = Tables({}, {})
    assert adapt_seconds(AdaptKind("tensor<1x16x1x1xf32>", nchw, nhwc), tables) == 0
    moved = AdaptKind("tensor<1x16x8x8xf32>", nchw, nhwc)
    assert 0 < adapt_seconds(moved, tables) < 1e-4
    assert adapt_seconds(moved, Tables({}, {}, {moved: 0.5})) == 0.5
