"""ONNX Runtime's GroupQueryAttention at static shapes: prompts, steps, rotary embedding, windows, sinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, Value, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_HEADS, _GROUPS, _WIDTH = 4, 2, 16
_INT32 = 6


def _model(
    length: int,
    past: int,
    total: int,
    lengths: list[int],
    *,
    is_packed: bool = False,
    is_fed: bool = False,
    has_bias: bool = False,
    has_sink: bool = False,
    codes: str = "",
    **options: Any,
) -> tuple[ModelProto, dict[str, Array]]:
    """A node over sequences that have these numbers of positions in all, and its inputs; caches may be codes."""
    batch, rows = len(lengths), {"q": _HEADS, "k": _GROUPS, "v": _GROUPS}
    if is_packed:
        rows = {"q": _HEADS + 2 * _GROUPS}
    feeds = {name: weights(batch, length, count * _WIDTH, seed=ord(name)) for name, count in rows.items()}
    read = ["q", *(["", ""] if is_packed else ["k", "v"]), *(["pk", "pv"] if past else ["", ""]), "lengths", "total"]
    feeds |= {name: weights(batch, _GROUPS, past, _WIDTH, seed=len(name)) for name in ("pk", "pv") if past}
    constants: dict[str, Array] = {"total": np.asarray(total, np.int32)}
    (feeds if is_fed else constants)["lengths"] = np.array(lengths, np.int32) - 1
    angles = np.outer(np.arange(64), 1e4 ** (-np.arange(_WIDTH // 2) / (_WIDTH // 2)))
    constants |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    read += ["cos", "sin"] if options.get("do_rotary") else ["", ""]
    if has_bias:
        feeds["bias"] = weights(1, _HEADS, length, total, seed=9)
    constants["sink"] = weights(_HEADS, seed=8)
    read += ["", "bias" if has_bias else "", "sink" if has_sink else ""]
    if codes:
        count = 1 if codes == "PER_TENSOR" else _GROUPS * _WIDTH
        constants |= {name: np.abs(weights(count, seed=len(name))) / 20 + 0.01 for name in ("k_scale", "values_scale")}
        feeds |= {name: np.rint(feeds[name] * 40).astype(np.int8) for name in ("pk", "pv") if past}
        read += ["k_scale", "values_scale"]
        options |= {"k_quant_type": codes, "v_quant_type": codes, "kv_cache_bit_width": 8}
    cell = node(
        "GroupQueryAttention", read, ["y", "nk", "nv"], domain=MS, num_heads=_HEADS, kv_num_heads=_GROUPS, **options
    )
    kinds = {"lengths": _INT32} | dict.fromkeys(("pk", "pv", "nk", "nv"), TensorProto.INT8 if codes else FLOAT)
    inputs: list[Value] = [(name, array.shape, kinds.get(name, FLOAT)) for name, array in feeds.items()]
    cache = (batch, _GROUPS, max(past, total), _WIDTH)
    outputs: list[str | Value] = ["y", ("nk", cache, kinds["nk"]), ("nv", cache, kinds["nv"])]
    return model([cell], inputs, outputs, {name: constants[name] for name in constants if name in read}), feeds


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((1, 6, 7, [7, 7]), {}),
        ((3, 6, 9, [9]), {"do_rotary": 1}),
        ((8, 0, 8, [8, 8]), {"do_rotary": 1, "rotary_interleaved": 1}),
        ((8, 0, 8, [8]), {"local_window_size": 3}),
        ((1, 6, 7, [7]), {"local_window_size": 3, "do_rotary": 1}),
        ((3, 6, 9, [9]), {"has_bias": True, "softcap": 2.0}),
        ((3, 6, 9, [9]), {"causal": 0}),
        ((1, 6, 7, [7, 7]), {"smooth_softmax": 1}),
        ((1, 6, 7, [7, 7]), {"has_sink": True, "scale": 0.3}),
        ((5, 0, 5, [5]), {"is_packed": True}),
        # Sequences of different lengths, in caches that are longer than they.
        ((1, 12, 7, [5, 7]), {"is_fed": True}),
        ((1, 6, 7, [4, 7]), {"do_rotary": 1, "is_fed": True}),
        # A first prompt does not read the cache that it is given.
        ((4, 10, 4, [4, 4]), {}),
        ((1, 6, 7, [7, 7]), {"codes": "PER_TENSOR"}),
        ((3, 9, 9, [9]), {"codes": "PER_CHANNEL", "do_rotary": 1}),
    ],
)
def test_groups_of_queries_share_keys(
    arguments: tuple[int, int, int, list[int]], options: dict[str, Any], prepare_quickly: Prepare
) -> None:
    original, feeds = _model(*arguments, **options)
    prepared = prepare_quickly(original).model
    assert all(item.domain == "" for item in prepared.graph.node)
    expected, actual = run(original, feeds), run(prepared, feeds)
    for name, right in expected.items():
        assert actual[name].shape == right.shape
        assert np.abs(actual[name] - right).max() < 2e-6, name


def test_what_is_not_supported_is_named(prepare_quickly: Prepare) -> None:
    original, _ = _model(1, 6, 7, [7], qk_output=1)
    with pytest.raises(UnsupportedModelError, match=r"\(com.microsoft.GroupQueryAttention\) has qk_output, which"):
        prepare_quickly(original)
    original, _ = _model(1, 6, 7, [7], codes="PER_TENSOR")
    for attribute in original.graph.node[0].attribute:
        if attribute.name == "kv_cache_bit_width":
            attribute.i = 4
    with pytest.raises(UnsupportedModelError, match="has caches of 4 bits, which is not supported"):
        prepare_quickly(original)
