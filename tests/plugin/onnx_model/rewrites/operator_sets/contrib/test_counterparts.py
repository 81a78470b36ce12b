"""Operators that have counterparts in the standard, of old sets too, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.operator_sets.contrib.refused import CONTRIB_REASONS
from sartor.onnx_model.rewrites.operator_sets.expand_operators import CONTRIB_OPERATORS
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_IMAGE: list[Value] = [("x", (2, 5, 6, 4), FLOAT)]
_ROWS: list[Value] = [("x", (2, 3, 8), FLOAT)]
_CONV: dict[str, Any] = {"w": weights(6, 4, 3, 3), "b": weights(6)}
_TO_FIRST, _TO_LAST = {"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]}
_CASES: dict[str, tuple[list[NodeProto], list[NodeProto], list[Value], dict[str, Any]]] = {
    "softmax": (
        [node("BiasSoftmax", ["x", "b"], ["y"], domain=MS, axis=2, is_inner_broadcast=1)],
        [node("Add", ["x", "b"], ["a"]), node("Softmax", ["a"], ["y"], axis=2)],
        _ROWS,
        {"b": weights(2, 1, 8)},
    ),
    "gelu": (
        [node("GemmFastGelu", ["x", "w", "b"], ["y"], domain=MS)],
        [node("MatMul", ["x", "w"], ["m"]), node("FastGelu", ["m", "b"], ["y"], domain=MS)],
        _ROWS,
        {"w": weights(8, 5), "b": weights(5)},
    ),
    "conv": (
        [node("NhwcConv", ["x", "w", "b"], ["y"], domain=MS, pads=[1, 0, 0, 1])],
        [
            node("Transpose", ["x"], ["t"], **_TO_FIRST),
            node("Transpose", ["w"], ["f"], name="filter", **_TO_FIRST),
            node("Conv", ["t", "f", "b"], ["c"], pads=[1, 0, 0, 1]),
            node("Transpose", ["c"], ["y"], name="back", **_TO_LAST),
        ],
        _IMAGE,
        {"w": weights(6, 3, 2, 4), "b": weights(6)},
    ),
    "fused_conv": (
        [node("NhwcFusedConv", ["x", "w", "b", "z"], ["y"], domain=MS, activation="Relu")],
        [
            node("Transpose", ["x"], ["t"], **_TO_FIRST),
            node("Conv", ["t", "w", "b"], ["c"]),
            node("Transpose", ["c"], ["l"], name="back", **_TO_LAST),
            node("Add", ["l", "z"], ["a"]),
            node("Relu", ["a"], ["y"]),
        ],
        _IMAGE,
        {**_CONV, "z": weights(2, 3, 4, 6)},
    ),
    "embedding": (
        [node("TorchEmbedding", ["w", "i"], ["e"], domain=MS), node("Add", ["x", "e"], ["y"])],
        [node("Gather", ["w", "i"], ["e"]), node("Add", ["x", "e"], ["y"])],
        _ROWS,
        {"w": weights(9, 8), "i": ints(1, 8, 3)},
    ),
}


@pytest.mark.parametrize("name", sorted(_CASES))
def test_operator_for_gpus_is_its_counterpart(name: str, prepare_quickly: Prepare) -> None:
    nodes, standard, inputs, constants = _CASES[name]
    feeds = sample_inputs(model(standard, inputs, ["y"], constants), 3)
    prepared = prepare_quickly(model(nodes, inputs, ["y"], constants)).model
    expected = run(model(standard, inputs, ["y"], constants), feeds)["y"]
    assert relative_error(run(prepared, feeds)["y"], expected) <= 1e-6


@pytest.mark.parametrize("skip_rank", [0, 2, 4])
@pytest.mark.parametrize("opset", [17, 18])
def test_group_norm_follows_its_definition(skip_rank: int, opset: int, prepare_quickly: Prepare) -> None:
    constants = {"g": weights(4), "b": weights(4, seed=1), "bias": weights(4, seed=2)}
    constants["s"] = weights(2, 4, seed=3) if skip_rank == 2 else weights(2, 5, 6, 4, seed=3)
    found: dict[str, Any] = {"domain": MS, "groups": 2, "activation": int(skip_rank == 0), "epsilon": 1e-3}
    normal = (
        node("SkipGroupNorm", ["x", "g", "b", "s", "bias"], ["y", "sum"], **found)
        if skip_rank
        else node("GroupNorm", ["x", "g", "b"], ["y"], **found)
    )
    outputs = ["y", "sum"] if skip_rank else ["y"]
    prepared = prepare_quickly(model([normal], _IMAGE, outputs, constants, opset=opset)).model
    x = weights(2, 5, 6, 4, seed=4)
    total = x
    if skip_rank:
        total = x + (constants["s"] if skip_rank == 4 else constants["s"][:, None, None]) + constants["bias"]
    rows = total.reshape(2, 30, 2, 2)
    normalised = (rows - rows.mean((1, 3), keepdims=True)) / np.sqrt(rows.var((1, 3), keepdims=True) + 1e-3)
    expected = normalised.reshape(x.shape) * constants["g"] + constants["b"]
    if not skip_rank:
        expected = expected / (1 + np.exp(-expected))
    actual = run(prepared, {"x": x})
    np.testing.assert_allclose(actual["y"], expected, rtol=1e-4, atol=1e-5)
    if skip_rank:
        np.testing.assert_allclose(actual["sum"], total, rtol=1e-6)


def test_pads_may_be_a_row(prepare_quickly: Prepare) -> None:
    pads = ints(0, 0, 1, 2, 0, 0, 0, 3).reshape(1, 8)
    built = model([node("Pad", ["x", "p"], ["y"], domain=MS)], _IMAGE, ["y"], {"p": pads})
    feeds = sample_inputs(built, 3)
    np.testing.assert_array_equal(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"])


def test_softmax_with_bias_over_outer_dimensions_is_refused(prepare_quickly: Prepare) -> None:
    item = node("BiasSoftmax", ["x", "b"], ["y"], domain=MS, axis=1, is_inner_broadcast=0)
    with pytest.raises(UnsupportedModelError, match=r"node 'biassoftmax' .*save the model without"):
        prepare_quickly(model([item], _ROWS, ["y"], {"b": weights(2, 1, 8)}))


@pytest.mark.parametrize(
    ("operator", "operands"),
    [("FastGelu", ["x"]), ("SkipLayerNormalization", ["x", "x", "g", "b"]), ("FusedMatMul", ["x", "w"])],
)
def test_softmax_of_an_old_opset_follows(operator: str, operands: list[str], prepare_quickly: Prepare) -> None:
    nodes = [
        node(operator, operands, ["a"], domain=MS),
        node("QuickGelu", ["a"], ["q"], domain=MS),
        node("Softmax", ["q"], ["y"], axis=1),
    ]
    constants = {"g": weights(8), "b": weights(8, seed=1), "w": weights(8, 6)}
    old = model(nodes, [("x", (2, 5, 8), FLOAT)], ["y"], constants, opset=11)
    feeds = sample_inputs(old, 3)
    assert relative_error(run(prepare_quickly(old).model, feeds)["y"], run(old, feeds)["y"]) <= 1e-5


@pytest.mark.parametrize("operator", ["FusedMatMul", "TransposeMatMul"])
@pytest.mark.parametrize(("left", "right"), [((4, 8), (2, 8, 5)), ((8,), (2, 8, 5)), ((2, 4, 8), (8,))])
def test_a_product_has_the_rank_of_its_longer_operand(
    operator: str, left: tuple[int, ...], right: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    """Less one for each vector."""
    nodes = [node(operator, ["a", "b"], ["m"], domain=MS), node("Softmax", ["m"], ["y"], axis=1)]
    old = model(nodes, [("a", left, FLOAT), ("b", right, FLOAT)], ["y"], opset=12)
    feeds = sample_inputs(old, 3)
    assert relative_error(run(prepare_quickly(old).model, feeds)["y"], run(old, feeds)["y"]) <= 1e-5


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_a_norm_has_the_type_of_its_scale(operator: str, prepare_quickly: Prepare) -> None:
    """Though not that of its values, which ONNX Runtime computes in f32."""
    nodes = [node(operator, ["x", "g"], ["n"]), node("Softmax", ["n"], ["y"], axis=1)]
    old = model(nodes, [("x", (2, 5, 8), FLOAT16)], ["y"], {"g": weights(8)}, opset=12)
    feeds = {"x": weights(2, 5, 8, seed=1).astype(np.float16)}
    assert relative_error(run(prepare_quickly(old).model, feeds)["y"], run(old, feeds)["y"]) <= 1e-5


@pytest.mark.parametrize(
    ("operator", "domain", "message"),
    [
        ("BeamSearch", MS, "runs a decoder an unknown number of times; export the decoder"),
        ("PagedAttention", MS, "keeps keys and values .*export the model without a cache"),
        ("SparseToDenseMatMul", MS, "not supported; export the model without"),
        ("Conv", "com.ms.internal.nhwc", "ORT_ENABLE_EXTENDED"),
        ("ATen", "org.pytorch.aten", "calls a function of PyTorch.*export the model"),
        ("EfficientNMS_TRT", "TRT", "operator set 'TRT', which is not known; export the model"),
    ],
)
def test_refusal_names_node_reason_and_way_out(
    operator: str, domain: str, message: str, save_and_load: Callable[[ModelProto | bytes], ModelProto]
) -> None:
    built = model([node(operator, ["x"], ["y"], domain=domain, name="odd")], [("x", (2, 3), FLOAT)], ["y"])
    if domain != MS:
        built.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(UnsupportedModelError, match=rf"node 'odd' \({domain}\.{operator}\) .*{message}"):
        save_and_load(built)


def test_no_operator_is_both_lowered_and_refused() -> None:
    assert not CONTRIB_OPERATORS & set(CONTRIB_REASONS)
