"""Products by weights in blocks: codes are fetched ahead where a product reads them about once."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockDotProduct, BlockProduct
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node

_TARGET = Target.create("cpu", "cascadelake")
_DEPTH, _COLUMNS, _BLOCK = 256, 96, 32


@pytest.mark.parametrize("rows", [1, 8, 200])
@pytest.mark.parametrize("routine", [BlockProduct(), BlockDotProduct(), BlockPanels()])
def test_codes_are_fetched_ahead_where_each_is_read_once_or_twice(
    routine: BlockProduct | BlockDotProduct | BlockPanels, rows: int
) -> None:
    is_fetched = "memref.prefetch" in _code(routine, rows)
    if isinstance(routine, BlockPanels) and rows < 8:
        assert not _code(routine, rows)
    else:
        assert is_fetched == (rows <= 8 or isinstance(routine, BlockPanels))


def test_what_is_fetched_at_a_time_is_a_unit_of_codes() -> None:
    """A loop's body has the lines of one word of each column and, around it, those of a block's scales in f16."""
    assert _code(BlockProduct(), 1).count("memref.prefetch") == 3


def _code(routine: BlockProduct | BlockDotProduct | BlockPanels, rows: int) -> str:
    """The code of the first variant for a product of so many rows; nothing if there is none."""
    parts = {
        "w": np.random.default_rng(0).integers(0, 256, (_COLUMNS, _DEPTH // _BLOCK, _BLOCK // 2), dtype=np.uint8),
        "s": np.ones(_COLUMNS * _DEPTH // _BLOCK, np.float32),
    }
    sizes = {"K": _DEPTH, "N": _COLUMNS, "bits": 4, "block_size": _BLOCK}
    product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, **sizes)
    (layer,) = imported_model(model([product], [("x", (rows, _DEPTH), FLOAT)], ["y"], parts)).graph.layers
    listed = choices_of(routine, layer.task, _TARGET)
    if isinstance(listed, Rejected):
        return ""
    built = routine.build(layer.task, listed[0], _TARGET)
    assert isinstance(built, Implementation)
    return lower({"layer": built}, _TARGET)["layer"].text
