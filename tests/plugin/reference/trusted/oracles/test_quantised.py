"""Definitions of operators of quantised values."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.quantised import product_by_blocks
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node
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


@pytest.mark.parametrize("bits", [2, 4])
def test_references_of_products_whose_groups_are_indices_are_by_these(bits: int) -> None:
    """ONNX Runtime multiplies by other numbers where codes have 2 bits."""
    of, random = BlockEncoding(bits, 32, 256, 48), np.random.default_rng(0)
    parts = parts_of(of, has_points=False)
    groups = random.permutation(np.arange(of.depth) // of.block).astype(np.int32)
    sizes = {"K": of.depth, "N": of.columns, "bits": bits, "block_size": of.block}
    product = node("MatMulNBits", ["x", *parts, "", "groups"], ["y"], domain=MS, **sizes)
    built = model([product], [("x", (3, of.depth), FLOAT)], ["y"], {**parts, "groups": groups})
    rows = random.standard_normal((3, of.depth)).astype(np.float32)
    feeds = Call(product, [rows, *parts.values(), None, groups], 1)
    (expected,) = product_by_blocks(feeds)
    (found,) = ReferenceModel(built.SerializeToString())({"x": rows})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


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
