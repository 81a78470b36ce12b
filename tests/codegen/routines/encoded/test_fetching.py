"""Products by weights in blocks: codes are fetched ahead, by few register tiles just before, by more a panel before."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockDotProduct, BlockProduct, BlockWordProduct
from tests.codegen.kernels.tracing import traces
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node

_TARGET = Target.create("cpu", "cascadelake")
_DEPTH, _COLUMNS, _BLOCK, _LINE = 128, 96, 32, 64
# Several panels of four vectors for a workgroup, the last of which is not full.
_MANY_COLUMNS = 608
_BYTES = {"i8": 1, "f16": 2, "f32": 4}
_FIRST_LEVEL = "locality<3>"


@pytest.mark.parametrize("rows", [1, 8, 200])
@pytest.mark.parametrize("routine", [BlockProduct(), BlockPanels()])
def test_codes_are_fetched_just_before_where_each_is_read_once_or_twice(routine: BlockRoutine, rows: int) -> None:
    is_fetched = _FIRST_LEVEL in _code(routine, rows)
    if isinstance(routine, BlockPanels) and rows < 8:
        assert not _code(routine, rows)
    else:
        assert is_fetched == (rows <= 8 or isinstance(routine, BlockPanels))


@pytest.mark.parametrize("rows", [24, 100])
@pytest.mark.parametrize("routine", [BlockProduct(), BlockDotProduct(), BlockWordProduct()])
def test_register_tiles_fetch_all_of_the_next_panel(routine: BlockRoutine, rows: int) -> None:
    layer = _layer(rows, _MANY_COLUMNS)
    listed = choices_of(routine, layer.task, _TARGET)
    assert not isinstance(listed, Rejected)
    kernel = routine.layer(layer.task, listed[0], _TARGET)
    followed = 0
    for _, trace in traces(kernel):
        for part, tensor in enumerate(kernel.kernel.reads[1:3], start=1):
            line, panel = _LINE // _BYTES[tensor.dtype], tensor.elements // tensor.shape[0]
            (places,) = trace.reads[part].nonzero()
            fetched = np.add.reduceat(trace.fetches[part], np.arange(0, tensor.elements, line))
            later = fetched[(places[0] + panel) // line : (places[-1] + 1) // line]
            followed += later.size
            assert (later >= 1).all()
            # Nothing behind the next panel, but for what parts alike round up.
            assert not fetched[(places[-1] + 1 + panel) // line + 4 :].any()
    assert followed


def test_what_is_fetched_at_a_time_is_a_unit_of_codes() -> None:
    """A loop's body has the lines of one word of each column and, around it, those of a block's scales in f16."""
    assert _code(BlockProduct(), 1).count("memref.prefetch") == 3


def _layer(rows: int, columns: int = _COLUMNS) -> Layer:
    """A product of so many rows."""
    parts = {
        "w": np.random.default_rng(0).integers(0, 256, (columns, _DEPTH // _BLOCK, _BLOCK // 2), dtype=np.uint8),
        "s": np.ones(columns * _DEPTH // _BLOCK, np.float32),
    }
    sizes = {"K": _DEPTH, "N": columns, "bits": 4, "block_size": _BLOCK}
    product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, **sizes)
    (layer,) = imported_model(model([product], [("x", (rows, _DEPTH), FLOAT)], ["y"], parts)).graph.layers
    return layer


def _code(routine: BlockRoutine, rows: int) -> str:
    """The code of the first variant for a product of so many rows; nothing if there is none."""
    task = _layer(rows).task
    listed = choices_of(routine, task, _TARGET)
    if isinstance(listed, Rejected):
        return ""
    built = routine.build(task, listed[0], _TARGET)
    assert isinstance(built, Implementation)
    return lower({"layer": built}, _TARGET)["layer"].text
