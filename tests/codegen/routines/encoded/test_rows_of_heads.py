"""Products by weights in blocks of rows that lie head by head, as attention gives them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, choices_of
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockDotProduct, BlockProduct, BlockWordProduct
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, MS, ints, model, node

_HEADS, _TOKENS, _HEAD, _COLUMNS, _BLOCK = 3, 16, 32, 40, 32
_DEPTH = _HEADS * _HEAD
_TARGET = Target.create("cpu", "cascadelake")


def _attended(axes: list[int]) -> ModelProto:
    """A product of what is turned to rows of tokens."""
    parts = {
        "w": np.random.default_rng(0).integers(0, 256, (_COLUMNS, _DEPTH // _BLOCK, _BLOCK // 2), dtype=np.uint8),
        "s": np.ones(_COLUMNS * _DEPTH // _BLOCK, np.float32),
        "shape": ints(1, _TOKENS, _DEPTH),
    }
    sizes = {"K": _DEPTH, "N": _COLUMNS, "bits": 4, "block_size": _BLOCK}
    nodes = [
        node("Transpose", ["x"], ["turned"], perm=axes),
        node("Reshape", ["turned", "shape"], ["rows"]),
        node("MatMulNBits", ["rows", "w", "s"], ["y"], name="product", domain=MS, **sizes),
    ]
    return model(nodes, [("x", (1, _HEADS, _TOKENS, _HEAD), FLOAT)], ["y"], parts)


@pytest.mark.parametrize("routine", [BlockProduct(), BlockPanels(), BlockDotProduct(), BlockWordProduct()])
def test_what_turns_heads_is_a_layer_of_its_own(routine: BlockProduct) -> None:
    turn, product = imported_model(_attended([0, 2, 1, 3])).graph.layers
    assert (turn.task.kind, product.task.kind) == (LayerKind.FIXED, LayerKind.CONTRACTION)
    assert not isinstance(choices_of(routine, product.task, _TARGET), Rejected)
