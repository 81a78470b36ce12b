"""Mixtures of experts as nodes give what ONNX Runtime's operators give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import attributes
from sartor.onnx_model.rewrites.operator_sets.contrib import expert_parts
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.encoded_products import PRODUCT, with_encoded_products
from tests.plugin.expert_models import DEPTH, EXPERTS, INNER, SWIGLU, feeds, of_bits, of_floats
from tests.plugin.onnx_model.builders import Array, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((7, DEPTH), {"k": 2}),
        # One of five experts is taken out of the others.
        ((1, DEPTH), {"k": 1}),
        ((1, 1, DEPTH), {"k": 1, **SWIGLU, "normalize_routing_weights": 1}),
        ((2, 3, DEPTH), {"k": 3, "activation_type": "gelu", "normalize_routing_weights": 1}),
        ((3, DEPTH), {"k": 5, "activation_type": "silu"}),
        ((3, DEPTH), {"k": 2, "activation_type": "identity"}),
        (
            (3, DEPTH),
            {"k": 2, **SWIGLU, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.4}
            | {"normalize_routing_weights": 1},
        ),
    ],
)
def test_experts_of_floats(shape: tuple[int, ...], attributes: dict[str, Any], prepare_quickly: Prepare) -> None:
    built, given = of_floats(shape, **attributes), feeds(*shape)
    prepared = prepare_quickly(built).model
    assert not {each.op_type for each in prepared.graph.node} & {"MoE"}
    is_sparse = any(item.op_type == "Gather" and item.input[0] == "w1" for item in prepared.graph.node)
    assert is_sparse is (shape[0] == 1), "only chosen experts are computed for a token"
    assert relative_error(run(prepared, given)["y"], run(built, given)["y"]) < 1e-5


def test_equal_routes_choose_the_last(prepare_quickly: Prepare) -> None:
    routes = np.array([[0, 0, 0, 0, 0], [1, 2, 2, 1, 1], [3, 3, 1, 0, 0], [0, 1, 1, 1, 0], [2, 1, 1, 0, 0]], np.float32)
    given = {"x": weights(len(routes), DEPTH), "routes": routes}
    for chosen in (1, 2):
        built = of_floats((len(routes), DEPTH), k=chosen)
        prepared = prepare_quickly(built).model
        assert relative_error(run(prepared, given)["y"], run(built, given)["y"]) < 1e-5


def test_experts_that_are_not_chosen_may_overflow(prepare_quickly: Prepare) -> None:
    built, given = of_floats((3, DEPTH), k=2), feeds(3, DEPTH)
    given["routes"][:, 4] = -9
    bias = next(tensor for tensor in built.graph.initializer if tensor.name == "b1")
    bias.CopyFrom(numpy_helper.from_array(np.full((EXPERTS, INNER), [[0]] * 4 + [[np.inf]], np.float32), "b1"))
    expected = run(built, given)["y"]
    assert np.isfinite(expected).all()
    assert relative_error(run(prepare_quickly(built).model, given)["y"], expected) < 1e-5


@pytest.mark.parametrize(("bits", "block", "rows"), [(4, 16, 3), (4, 16, 1), (8, 16, 3), (4, 0, 3), (8, 0, 3)])
def test_experts_in_few_bits_stay_encoded(bits: int, block: int, rows: int, prepare_quickly: Prepare) -> None:
    shape = (rows, DEPTH)
    built, given = of_bits(bits, block, shape, k=2, normalize_routing_weights=1), feeds(*shape)
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node].count("MatMulNBits") == 2
    assert relative_error(run(prepared, given)["y"], run(built, given)["y"]) < 1e-5


def _each_row(prepared: ModelProto, built: ModelProto, given: dict[str, Array]) -> float:
    expected = run(built, given)["y"]
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    return float((np.abs(run(prepared, given)["y"] - expected) / largest).max())


@pytest.mark.parametrize("rows", [1, 2, 7, 33])
@pytest.mark.parametrize("chosen", [1, 2, 5])
def test_tokens_are_multiplied_by_their_experts_alone(rows: int, chosen: int, prepare_quickly: Prepare) -> None:
    built, given = of_bits(4, 16, (rows, DEPTH), k=chosen), feeds(rows, DEPTH)
    # One expert that no token has, and one that all have.
    given["routes"][:, 1], given["routes"][:, 3] = -9, 9
    prepared = prepare_quickly(built).model
    products = [each for each in with_encoded_products(prepared).graph.node if each.op_type == PRODUCT]
    assert [attributes(each).get("parts") for each in products] == [EXPERTS, EXPERTS]
    assert _each_row(prepared, built, given) < 1e-5


def test_many_rows_are_multiplied_in_parts(prepare_quickly: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    built, given = of_bits(4, 16, (33, DEPTH), k=2), feeds(33, DEPTH)
    monkeypatch.setattr(expert_parts, "_MOST_NUMBERS", 20 * EXPERTS * DEPTH)
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node].count("MatMulNBits") == 4 + 8
    assert _each_row(prepared, built, given) < 1e-5
    # Halves of one number of tokens are no halves of another: layers of any size are made of nodes that are the same.
    alike = prepare_quickly(built, is_open=True).model
    assert [each.op_type for each in alike.graph.node].count("MatMulNBits") == 2
    assert _each_row(alike, built, given) < 1e-5


OWN = np.array(
    [
        # Of each token two are chosen: routes rank the last highest.
        [9, 9, 9, 0.5, 0.2],
        [9, 9, 9, -0.5, 0.2],
        [9, 9, 9, 0.2, -0.1],
        [9, 9, 9, -0.5, -0.2],
        [9, 9, 9, 0, 0],
        [9, 9, 9, 0.5, -0.5],
        [9, 9, 9, 1e-30, 1e-30],
    ],
    np.float32,
)


@pytest.mark.parametrize("normalises", [0, 1])
@pytest.mark.parametrize("own", [None, OWN])
def test_weights_of_experts_in_few_bits(normalises: int, own: Array | None, prepare_quickly: Prepare) -> None:
    shape = (len(OWN), DEPTH)
    given = {"x": weights(*shape), "routes": np.tile(np.arange(EXPERTS, dtype=np.float32) / 4, (len(OWN), 1))}
    # Two logits of which the first is larger by less than shares show.
    given["routes"][0] = [0, 0, 0, 1e-9, 0]
    built = of_bits(4, 16, shape, {} if own is None else {"own": own}, k=2, normalize_routing_weights=normalises)
    expected, made = run(built, given)["y"], run(prepare_quickly(built).model, given)["y"]
    # Each token by itself; ONNX Runtime also leaves out weights near zero.
    largest = np.abs(expected).max(axis=-1)
    assert (np.abs(made - expected).max(axis=-1) <= 1e-5 * largest + 1e-20).all()


def points(*shape: int) -> Array:
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("bits", [4, 8])
# With a length of blocks, too, scales of two dimensions are of rows.
@pytest.mark.parametrize("block", [0, 16])
def test_zero_points_of_rows(bits: int, block: int, prepare_quickly: Prepare) -> None:
    # Rows of several blocks, also where the model has none.
    shape, packed = (2, 256), 8 // bits
    stored = {"z1": points(EXPERTS, 2 * INNER // packed), "z2": points(EXPERTS, 256 // packed)}
    for index, results in (("1", 2 * INNER), ("2", 256)):
        stored[f"s{index}"] = weights(EXPERTS, results, scale=2.0**-bits, seed=int(index))
    built, given = of_bits(bits, block, shape, stored, k=2, normalize_routing_weights=1), feeds(*shape)
    assert relative_error(run(prepare_quickly(built).model, given)["y"], run(built, given)["y"]) < 1e-5


@pytest.mark.parametrize(
    ("block", "changed", "said"),
    [
        (0, {"s1": weights(EXPERTS, 2 * INNER, 3)}, r"scales of the shape \[5, 96, 3\]; \[5, 96, 1\] was expected"),
        (0, {"s1": weights(EXPERTS, 2 * INNER + 1)}, r"scales of the shape \[5, 97\]; \[5, 96\] was expected"),
        (0, {"z1": points(5, 9), "z2": points(5, 16)}, r"zero points of the shape \[5, 9\]; \[5, 48\] was expected"),
        (16, {"s2": weights(EXPERTS, DEPTH, 2)}, r"scales of the shape \[5, 32, 2\]; \[5, 32, 3\] was expected"),
        (16, {"z2": points(5, 32, 1)}, r"zero points of the shape \[5, 32, 1\]; \[5, 32, 2\] was expected"),
        (16, {"z2": weights(5, 32, 2)}, "zero points that are not constant bytes"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    block: int, changed: dict[str, Array], said: str, prepare_quickly: Prepare
) -> None:
    with pytest.raises(UnsupportedModelError, match=f"node 'qmoe' .*{said}"):
        prepare_quickly(of_bits(4, block, (3, DEPTH), changed, k=2))


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"k": 2, "activation_type": "geglu"}, "has the activation geglu; identity, relu, silu, gelu or swiglu"),
        ({"k": 6}, "of which 6 are chosen, for 3 tokens"),
        ({"k": 2, "use_sparse_mixer": 1}, "use_sparse_mixer=1, which is for GPUs; export it with 0"),
        ({"k": 2, "activation_type": "swiglu"}, "has no third weight, where its activation needs one"),
    ],
)
def test_others_are_refused(attributes: dict[str, Any], said: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=f"node 'moe' .*{said}"):
        prepare_quickly(of_floats((3, DEPTH), **attributes))
