"""ONNX Runtime's attention with past keys and values of static lengths, and with packed operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.together import computed_together

Array = np.ndarray[Any, Any]
_HEADS, _HEAD, _BATCH = 2, 4, 2
_WIDTH = _HEADS * _HEAD
_ALLOWED = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 4e-3}


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def _model(operator: str, feeds: dict[str, Array | None], results: int, options: dict[str, Any]) -> ModelProto:
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
    return _model(operator, feeds, results, options), given


def _check(cases: Mapping[str, _Case]) -> None:
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
    feeds: dict[str, Array | None] = {name: _normal(_BATCH, length, _WIDTH, seed=ord(name)) for name in "qkv"}
    feeds |= {"bias": _normal(3 * _WIDTH), "mask": None, "addend": _normal(1, _HEADS, length, past + length)}
    feeds |= {"past_key": _normal(*cache), "past_value": _normal(*cache, seed=1)}
    typed: dict[str, Array | None] = {
        name: None if values is None else values.astype(kind) for name, values in feeds.items()
    }
    return _case("MultiHeadAttention", typed, 3, **options)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_past_keys_come_before_new_ones(kind: type) -> None:
    """And are returned with them."""
    _check(
        {
            "one": _with_past(1, 5, {}, kind),
            "several": _with_past(3, 4, {"unidirectional": 1}, kind),
            "several that see each other": _with_past(2, 3, {}, kind),
        }
    )


def _projected(mask: list[list[int]] | None, options: dict[str, Any]) -> _Case:
    feeds: dict[str, Array | None] = {"x": _normal(_BATCH, 2, _WIDTH), "w": _normal(_WIDTH, 3 * _WIDTH)}
    feeds |= {"b": _normal(3 * _WIDTH), "mask": None if mask is None else np.array(mask, np.int32)}
    feeds["past"] = _normal(2, _BATCH, _HEADS, 3, _HEAD)
    return _case("Attention", feeds, 2, **options)


def test_past_of_the_attention_with_its_projection() -> None:
    mask, after = [[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], {"unidirectional": 1}
    _check(
        {
            "plain": _projected(None, {}),
            "unidirectional": _projected(None, after),
            "masked": _projected(mask, {}),
            "both": _projected(mask, after),
        }
    )


def test_keys_that_were_computed_once() -> None:
    """As a decoder has them of its encoder: already by heads."""
    feeds: dict[str, Array | None] = {"q": _normal(_BATCH, 3, _WIDTH)}
    feeds |= {name: _normal(_BATCH, _HEADS, 5, _HEAD, seed=ord(name)) for name in "kv"}
    _check({"once": _case("MultiHeadAttention", feeds)})


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_packed_operands(kind: type) -> None:
    """Which ONNX Runtime's CPU kernel does not take."""
    cases = {}
    for parts in (2, 3):
        feeds: dict[str, Array | None] = {"q": _normal(_BATCH, 3, _WIDTH).astype(kind)} if parts == 2 else {}
        feeds["packed"] = _normal(_BATCH, 5, _HEADS, parts, _HEAD).astype(kind)
        cases[f"{parts} parts"] = _case("MultiHeadAttention", feeds)
    _check(cases)
