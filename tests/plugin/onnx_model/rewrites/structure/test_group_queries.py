"""Heads that share keys become rows of one product."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.onnx_model.preparing.prepare import prepare
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.cache_models import Decoder
from tests.plugin.onnx_model.builders import FLOAT, Value, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

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
    right, found = (OnnxRuntimeReference(source, threads=1)(given) for source in sources)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("queries", "batch", "mask"),
    [((1, 4, 3, 8), 2, (3, 5)), ((2, 1, 3, 8), 2, (3, 5)), ((1, 4, 3, 8), 1, (2, 1, 3, 5)), ((1, 4, 1, 8), 1, (3, 5))],
    ids=["one sequence of queries", "one head of queries", "masks of more sequences", "masks of more queries"],
)
def test_products_that_spread_queries_stay(
    queries: tuple[int, ...], batch: int, mask: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    """Keys and values of two groups are repeated for two heads each."""
    repeated = [
        node(operator, [read, constant], [f"{name}{result}"], name=f"{operator}_{name}")
        for name in "kv"
        for operator, read, constant, result in (
            ("Unsqueeze", name, "axis", 1),
            ("Expand", f"{name}1", "several", 2),
            ("Reshape", f"{name}2", "heads", 3),
        )
    ]
    attention = [
        node("Transpose", ["k3"], ["k4"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "k4"], ["scores"], name="scores"),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v3"], ["y"], name="sums"),
    ]
    shapes = {"q": queries, "k": (batch, 2, 5, 8), "v": (batch, 2, 5, 8), "mask": mask}
    constants = {"axis": [2], "several": [batch, 2, 2, 5, 8], "heads": [batch, 4, 5, 8]}
    inputs: list[Value] = [(name, shape, FLOAT) for name, shape in shapes.items()]
    built = model(
        [*repeated, *attention], inputs, ["y"], {name: np.array(constant) for name, constant in constants.items()}
    )
    given = {name: weights(*shape, seed=index) for index, (name, shape) in enumerate(shapes.items())}
    found = run(prepare_quickly(built).model, given)["y"]
    np.testing.assert_allclose(found, run(built, given)["y"], rtol=1e-5, atol=1e-6)
