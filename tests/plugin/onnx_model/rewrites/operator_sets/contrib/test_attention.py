"""ONNX Runtime's attention with masks, past keys and values, and packed operands, beside ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor
import sartor.backend
from sartor.errors import UnsupportedModelError
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.together import computed_together

Feeds = dict[str, np.ndarray[Any, Any] | None]
_LEAST = float(np.finfo(np.float32).min)
_MASKS = {
    "none": None,
    "ends": [2, 3],
    "right": [[1, 1, 0, 0], [1, 1, 1, 0]],
    "left": [[0, 0, 1, 1], [0, 1, 1, 1]],
    "nothing": [[0, 0, 0, 0], [1, 1, 1, 0]],
    "segments": [[1, 1, 2, 2], [1, 2, 0, 0]],
    "matrix": [[[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]]] * 2,
}


def _model(op_type: str, feeds: Feeds, options: dict[str, Any], queries: int = 4) -> ModelProto:
    names = [name if feed is not None else "" for name, feed in feeds.items()]
    while not names[-1]:
        names.pop()
    node = helper.make_node(op_type, names, ["y"], name="attention", domain="com.microsoft", num_heads=2, **options)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feed.dtype), feed.shape)
        for name, feed in feeds.items()
        if feed is not None
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, queries, 8])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "graph", values, [result]), opset_imports=opsets, ir_version=9)


def _check(cases: Sequence[tuple[ModelProto, Feeds]]) -> None:
    """Results beside ONNX Runtime's."""
    given = {
        str(number): (model, {name: feed for name, feed in feeds.items() if feed is not None})
        for number, (model, feeds) in enumerate(cases)
    }
    for number, (found,) in computed_together(given).items():
        model, feeds = given[number]
        (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        # Scores beside -10000 have few digits.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=str(model.graph.node[0]))


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}, {"unidirectional": 1, "mask_filter_value": _LEAST}])
def test_masks_exclude_what_they_do_in_onnx_runtime(options: dict[str, Any]) -> None:
    """Also in rows of which nothing is left, where it counts by which number each key is excluded."""
    cases = []
    for name, mask in _MASKS.items():
        given = None if mask is None else np.asarray(mask, np.int32)
        cases.append(_attention(given, options))
        if name != "ends":
            cases.append(_heads(given, options))
    _check(cases)


def _attention(given: np.ndarray[Any, Any] | None, options: dict[str, Any]) -> tuple[ModelProto, Feeds]:
    own: Feeds = {"x": _normal(2, 4, 8), "w": _normal(8, 24) * np.float32(0.4), "b": _normal(24), "mask": given}
    return _model("Attention", own, options), own


def _heads(given: np.ndarray[Any, Any] | None, options: dict[str, Any]) -> tuple[ModelProto, Feeds]:
    apart: Feeds = {**{name: _normal(2, 4, 8) for name in "qkv"}, "bias": None, "mask": given}
    return _model("MultiHeadAttention", apart, options), apart


def test_keys_after_a_query_are_excluded() -> None:
    cases = []
    for keys in (3, 4):
        feeds: Feeds = {"q": _normal(2, 4, 8), "k": _normal(2, keys, 8), "v": _normal(2, keys, 8) + np.float32(1)}
        cases.append((_model("MultiHeadAttention", feeds, {"unidirectional": 1}), feeds))
    _check(cases)


def test_masks_of_ends_and_starts() -> None:
    """The last leave nothing of their sequences."""
    bounds = ([2, 3, 0, 1], [4, 3, 3, 0], [1, 4, 2, 4])
    options: tuple[dict[str, Any], ...] = ({}, {"unidirectional": 1})
    _check([_attention(np.array(each, np.int32), given) for each, given in itertools.product(bounds, options)])


def test_a_single_query_sees_all_keys() -> None:
    cases, masks = [], (None, np.array([[1, 1, 0, 0, 1, 0], [0, 1, 1, 1, 1, 1]], np.int32))
    for mask, scale in itertools.product(masks, (1e-3, 1.0, 5.0)):
        feeds: Feeds = {"q": _normal(2, 1, 8) * np.float32(scale), "k": _normal(2, 6, 8), "v": _normal(2, 6, 8)}
        feeds |= {"bias": None, "mask": mask}
        cases.append((_model("MultiHeadAttention", feeds, {"unidirectional": 1}, queries=1), feeds))
    _check(cases)


def test_more_keys_than_queries_are_refused() -> None:
    feeds: dict[str, np.ndarray[Any, Any] | None] = {
        "q": _normal(2, 4, 8),
        "k": _normal(2, 6, 8),
        "v": _normal(2, 6, 8),
    }
    model = _model("MultiHeadAttention", feeds, {"unidirectional": 1})
    with pytest.raises(UnsupportedModelError, match=r"'attention' .* is unidirectional over 6 keys for 4 queries"):
        sartor.backend.run_model(model, [feed for feed in feeds.values() if feed is not None])


Array = np.ndarray[Any, Any]
_HEADS, _HEAD, _BATCH = 2, 4, 2
_WIDTH = _HEADS * _HEAD
_ALLOWED = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 4e-3}


def _past_normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def _past_model(operator: str, feeds: dict[str, Array | None], results: int, options: dict[str, Any]) -> ModelProto:
    names = [name if values is not None else "" for name, values in feeds.items()]
    outputs = [f"y{index}" for index in range(results)]
    node = helper.make_node(operator, names, outputs, "attention", domain="com.microsoft", num_heads=_HEADS, **options)
    given = {name: values for name, values in feeds.items() if values is not None}
    kind = helper.np_dtype_to_tensor_dtype(next(iter(given.values())).dtype)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in given.items()
    ]
    ranks = [3, 5] if operator == "Attention" else [3, 4, 4]
    described = [helper.make_tensor_value_info(y, kind, [None] * rank) for y, rank in zip(outputs, ranks, strict=False)]
    graph = helper.make_graph([node], "graph", inputs, described)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


_Case = tuple[ModelProto, dict[str, Array]]


def _case(operator: str, feeds: dict[str, Array | None], results: int = 1, **options: Any) -> _Case:
    given = {name: values for name, values in feeds.items() if values is not None}
    return _past_model(operator, feeds, results, options), given


def _past_check(cases: Mapping[str, _Case]) -> None:
    """Results beside the reference's."""
    for name, compiled in computed_together(cases).items():
        model, given = cases[name]
        for result, wanted in zip(compiled, ReferenceModel(model.SerializeToString())(given), strict=True):
            assert result.shape == wanted.shape, name
            assert result.dtype == wanted.dtype, name
            error = np.abs(result.astype(np.float64) - wanted.astype(np.float64)).max()
            assert error <= _ALLOWED[wanted.dtype] * np.abs(wanted.astype(np.float64)).max(), name


def _with_past(length: int, past: int, options: dict[str, Any], kind: type) -> _Case:
    cache = (_BATCH, _HEADS, past, _HEAD)
    feeds: dict[str, Array | None] = {name: _past_normal(_BATCH, length, _WIDTH, seed=ord(name)) for name in "qkv"}
    feeds |= {"bias": _past_normal(3 * _WIDTH), "mask": None, "addend": _past_normal(1, _HEADS, length, past + length)}
    feeds |= {"past_key": _past_normal(*cache), "past_value": _past_normal(*cache, seed=1)}
    typed: dict[str, Array | None] = {
        name: None if values is None else values.astype(kind) for name, values in feeds.items()
    }
    return _case("MultiHeadAttention", typed, 3, **options)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_past_keys_come_before_new_ones(kind: type) -> None:
    """And are returned with them."""
    _past_check(
        {
            "one": _with_past(1, 5, {}, kind),
            "several": _with_past(3, 4, {"unidirectional": 1}, kind),
            "several that see each other": _with_past(2, 3, {}, kind),
        }
    )


def _projected(mask: list[list[int]] | None, options: dict[str, Any]) -> _Case:
    feeds: dict[str, Array | None] = {"x": _past_normal(_BATCH, 2, _WIDTH), "w": _past_normal(_WIDTH, 3 * _WIDTH)}
    feeds |= {"b": _past_normal(3 * _WIDTH), "mask": None if mask is None else np.array(mask, np.int32)}
    feeds["past"] = _past_normal(2, _BATCH, _HEADS, 3, _HEAD)
    return _case("Attention", feeds, 2, **options)


def test_past_of_the_attention_with_its_projection() -> None:
    mask, after = [[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], {"unidirectional": 1}
    _past_check(
        {
            "plain": _projected(None, {}),
            "unidirectional": _projected(None, after),
            "masked": _projected(mask, {}),
            "both": _projected(mask, after),
        }
    )


def test_keys_that_were_computed_once() -> None:
    """As a decoder has them of its encoder: already by heads."""
    feeds: dict[str, Array | None] = {"q": _past_normal(_BATCH, 3, _WIDTH)}
    feeds |= {name: _past_normal(_BATCH, _HEADS, 5, _HEAD, seed=ord(name)) for name in "kv"}
    _past_check({"once": _case("MultiHeadAttention", feeds)})


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_packed_operands(kind: type) -> None:
    """Which ONNX Runtime's CPU kernel does not take."""
    cases = {}
    for parts in (2, 3):
        feeds: dict[str, Array | None] = {"q": _past_normal(_BATCH, 3, _WIDTH).astype(kind)} if parts == 2 else {}
        feeds["packed"] = _past_normal(_BATCH, 5, _HEADS, parts, _HEAD).astype(kind)
        cases[f"{parts} parts"] = _case("MultiHeadAttention", feeds)
    _past_check(cases)
