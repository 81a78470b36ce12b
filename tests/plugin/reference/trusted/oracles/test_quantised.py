"""Definitions of operators of quantised values."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.quantised import product_by_blocks
from tests.plugin.onnx_model.builders import MS, node
from tests.plugin.tied_models import parts_of, values_of


@pytest.mark.parametrize("has_points", [False, True])
@pytest.mark.parametrize(
    "of", [BlockEncoding(4, 32, 100, 300), BlockEncoding(8, 16, 48, 128), BlockEncoding(2, 64, 70, 1)]
)
def test_products_by_blocks_are_those_by_their_numbers(of: BlockEncoding, has_points: bool) -> None:
    parts, x = parts_of(of, has_points=has_points), np.random.default_rng(1).standard_normal((3, of.depth))
    sizes = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block}
    product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, **sizes)
    (found,) = product_by_blocks(Call(product, [x, *parts.values()], 1))
    assert np.allclose(found, x @ values_of(of, parts).T, rtol=1e-12)


def test_few_columns_of_a_weight_in_blocks_are_decoded_at_a_time() -> None:
    of = BlockEncoding(4, 32, 256, 8192)
    parts, x = parts_of(of, has_points=False), np.ones((1, of.depth), np.float32)
    product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, K=of.depth, N=of.columns, bits=4, block_size=32)
    tracemalloc.start()
    try:
        product_by_blocks(Call(product, [x, *parts.values()], 1))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Scales and zero points of all columns are held in float64.
    assert most < 4 * sum(part.nbytes for part in parts.values())
