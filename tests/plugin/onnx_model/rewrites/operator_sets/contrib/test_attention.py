"""ONNX Runtime's attention with masks, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor.backend
from sartor.errors import UnsupportedModelError
from tests.thorough import in_turns

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


def _model(
    op_type: str, feeds: dict[str, np.ndarray[Any, Any] | None], options: dict[str, Any], queries: int = 4
) -> ModelProto:
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


def _check(model: ModelProto, feeds: dict[str, np.ndarray[Any, Any] | None]) -> None:
    given = {name: feed for name, feed in feeds.items() if feed is not None}
    (found,) = sartor.backend.run_model(model, list(given.values()))
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    # Scores beside -10000 have few digits.
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mask", _MASKS)
@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}, {"unidirectional": 1, "mask_filter_value": _LEAST}])
def test_masks_exclude_what_they_do_in_onnx_runtime(
    mask: str, options: dict[str, Any], pytestconfig: pytest.Config
) -> None:
    """Also in rows of which nothing is left, where it counts by which number each key is excluded."""
    given = None if _MASKS[mask] is None else np.asarray(_MASKS[mask], np.int32)
    operators = {"Attention": _check_attention}
    if mask != "ends":
        operators["MultiHeadAttention"] = _check_heads
    for check in in_turns(operators, [*_MASKS].index(mask) + len(options), pytestconfig).values():
        check(given, options)


def _check_attention(given: np.ndarray[Any, Any] | None, options: dict[str, Any]) -> None:
    own: dict[str, np.ndarray[Any, Any] | None] = {"x": _normal(2, 4, 8), "w": _normal(8, 24) * np.float32(0.4)}
    own |= {"b": _normal(24), "mask": given}
    _check(_model("Attention", own, options), own)


def _check_heads(given: np.ndarray[Any, Any] | None, options: dict[str, Any]) -> None:
    apart: dict[str, np.ndarray[Any, Any] | None] = {name: _normal(2, 4, 8) for name in "qkv"}
    apart |= {"bias": None, "mask": given}
    _check(_model("MultiHeadAttention", apart, options), apart)


@pytest.mark.parametrize("keys", [3, 4])
def test_keys_after_a_query_are_excluded(keys: int) -> None:
    feeds: dict[str, np.ndarray[Any, Any] | None] = {"q": _normal(2, 4, 8), "k": _normal(2, keys, 8)}
    feeds["v"] = _normal(2, keys, 8) + np.float32(1)
    _check(_model("MultiHeadAttention", feeds, {"unidirectional": 1}), feeds)


@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}])
@pytest.mark.parametrize("bounds", [[2, 3, 0, 1], [4, 3, 3, 0], [1, 4, 2, 4]])
def test_masks_of_ends_and_starts(bounds: list[int], options: dict[str, Any]) -> None:
    """The last leave nothing of their sequences."""
    feeds: dict[str, np.ndarray[Any, Any] | None] = {"x": _normal(2, 4, 8), "w": _normal(8, 24) * np.float32(0.4)}
    feeds |= {"b": _normal(24), "mask": np.array(bounds, np.int32)}
    _check(_model("Attention", feeds, options), feeds)


@pytest.mark.parametrize("mask", [None, [[1, 1, 0, 0, 1, 0], [0, 1, 1, 1, 1, 1]]])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 5.0])
def test_a_single_query_sees_all_keys(mask: list[list[int]] | None, scale: float) -> None:
    feeds: dict[str, np.ndarray[Any, Any] | None] = {"q": _normal(2, 1, 8) * np.float32(scale)}
    feeds |= {"k": _normal(2, 6, 8), "v": _normal(2, 6, 8), "bias": None}
    feeds["mask"] = None if mask is None else np.array(mask, np.int32)
    _check(_model("MultiHeadAttention", feeds, {"unidirectional": 1}, queries=1), feeds)


def test_more_keys_than_queries_are_refused() -> None:
    feeds: dict[str, np.ndarray[Any, Any] | None] = {
        "q": _normal(2, 4, 8),
        "k": _normal(2, 6, 8),
        "v": _normal(2, 6, 8),
    }
    model = _model("MultiHeadAttention", feeds, {"unidirectional": 1})
    with pytest.raises(UnsupportedModelError, match=r"'attention' .* is unidirectional over 6 keys for 4 queries"):
        sartor.backend.run_model(model, [feed for feed in feeds.values() if feed is not None])
