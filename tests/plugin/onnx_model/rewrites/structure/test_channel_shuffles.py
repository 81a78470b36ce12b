"""Channel shuffles whose results are indexed, and heads that share keys as rows of one product."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.onnx_model.preparing.prepare import prepare
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.cache_models import Decoder
from tests.plugin.onnx_model.builders import FLOAT, Value, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

SHAPE = (2, 4, 3, 5)


def _shuffle(parts: int, groups: int, *, images: int = SHAPE[0]) -> ModelProto:
    """Images shuffled as ShuffleNetV2's authors do it, and the last group of channels added to the first."""
    rows, pixels = SHAPE[0] * SHAPE[1] * parts // groups, SHAPE[2] * SHAPE[3]
    shown = [groups, images, rows // images, *SHAPE[2:]]
    constants = {"s": ints(rows, groups, pixels), "t": ints(*shown), "i": np.array(0), "j": np.array(-1)}
    given = [f"x{number}" for number in range(parts)]
    nodes = [
        node("Concat", given, ["joined"], axis=1),
        node("Reshape", ["joined", "s"], ["split"], name="split"),
        node("Transpose", ["split"], ["turned"], perm=[1, 0, 2]),
        node("Reshape", ["turned", "t"], ["shuffled"], name="merge"),
        node("Gather", ["shuffled", "i"], ["first"], axis=0, name="first"),
        node("Gather", ["shuffled", "j"], ["last"], axis=0, name="last"),
        node("Relu", ["last"], ["right"]),
        node("Add", ["first", "right"], ["y"]),
    ]
    return model(nodes, [(name, SHAPE, FLOAT) for name in given], ["y"], constants, opset=18)


def _operators(prepared: ModelProto) -> set[str]:
    return {each.op_type for each in prepared.graph.node}


@pytest.mark.parametrize(("parts", "groups"), [(3, 2), (3, 4), (3, 3), (3, 6), (2, 2)])
def test_groups_are_slices(parts: int, groups: int, prepare_quickly: Prepare) -> None:
    built = _shuffle(parts, groups)
    prepared = prepare_quickly(built).model
    assert _operators(prepared) == {"Concat", "Slice", "Relu", "Add"}
    feeds = {f"x{number}": weights(*SHAPE) + number for number in range(parts)}
    joined = np.concatenate(list(feeds.values()), axis=1)
    expected = joined[:, ::groups] + np.maximum(joined[:, groups - 1 :: groups], 0)
    np.testing.assert_array_equal(run(prepared, feeds)["y"], expected)
    np.testing.assert_array_equal(run(built, feeds)["y"], expected)


def test_other_results_are_left_alone(prepare_quickly: Prepare) -> None:
    """Channels of all images in one: no slice of channels."""
    built = _shuffle(3, 2, images=1)
    feeds = {f"x{number}": weights(*SHAPE) + number for number in range(3)}
    prepared = prepare_quickly(built).model
    assert {"Transpose", "Gather"} <= _operators(prepared)
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


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
