"""Heads that share keys become rows of one product."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.onnx_model.preparing.prepare import prepare
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.cache_models import Decoder

PAST = 4


def feeds(decoder: Decoder, new: int) -> dict[str, Array]:
    random = np.random.default_rng(0)
    shape = (1, decoder.groups, PAST, decoder.width)
    caches = {
        f"past_key_values.0.{kind}": random.standard_normal(shape).astype(np.float32) for kind in ("key", "value")
    }
    places = {"input_ids": np.arange(new)[None], "position_ids": PAST + np.arange(new)[None]}
    mask = {"attention_mask": (np.arange(PAST + new)[None] > 1).astype(np.int64)} if decoder.has_mask else {}
    return {**places, **mask, **caches}


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("has_mask", [False, True])
def test_keys_that_heads_share_are_not_repeated(new: int, has_mask: bool) -> None:
    decoder = Decoder(layers=1, has_mask=has_mask)
    given = feeds(decoder, new)
    prepared = prepare(decoder.model(), {name: array.shape for name, array in given.items()})
    assert not {"Expand", "Tile"} & {node.op_type for node in prepared.model.graph.node}
    sources = decoder.model().SerializeToString(), prepared.model.SerializeToString()
    right, found = (OnnxRuntimeReference(each, threads=1)(given) for each in sources)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
