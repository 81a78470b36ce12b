"""ONNX Runtime's attention of one token over a buffer of keys and values, alone and in searches by beams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.table_rows import table_rows
from sartor.onnx_model.rewrites.operator_sets.expand_operators import expand_operators
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import run
from tests.plugin.onnx_model.conftest import Prepare

Array = np.ndarray[Any, Any]
_HEADS, _HEAD, _BATCH, _ROOM = 2, 4, 4, 6
_WIDTH = _HEADS * _HEAD
_Feeds = dict[str, Array | None]
_NAMES = ("q", "k", "v", "mask", "addend", "past_key", "past_value", "length", "beam_width", "origins", "bias")


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def _feeds(before: int, **others: Array | None) -> _Feeds:
    feeds: _Feeds = {name: _normal(_BATCH, 1, _WIDTH, seed=ord(name)) for name in "qkv"}
    feeds |= {name: _normal(_BATCH, _HEADS, _ROOM, _HEAD, seed=len(name)) for name in ("past_key", "past_value")}
    return {**feeds, "length": np.array([before], np.int32), **others}


def _model(feeds: _Feeds, results: int = 3, **options: Any) -> tuple[ModelProto, dict[str, Array]]:
    given = {name: array for name in _NAMES if (array := feeds.get(name)) is not None}
    outputs = [f"y{index}" for index in range(results)]
    node = helper.make_node(
        "DecoderMaskedMultiHeadAttention",
        [name if name in given else "" for name in _NAMES],
        outputs,
        "attention",
        domain="com.microsoft",
        num_heads=_HEADS,
        **options,
    )
    # The width of beams is read on the host.
    held = [numpy_helper.from_array(given.pop("beam_width"), "beam_width")] if "beam_width" in given else []
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    described = [
        helper.make_tensor_value_info(y, 1, [None] * rank) for y, rank in zip(outputs, (3, 4, 4), strict=False)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "graph", inputs, described, held)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), given


def _mask(length: int) -> Array:
    return (np.arange(_BATCH * length).reshape(_BATCH, length) % 4 > 0).astype(np.int32)


def _beams() -> _Feeds:
    origins = np.random.default_rng(1).integers(0, 2, (_BATCH // 2, 2, _ROOM)).astype(np.int32)
    return {"beam_width": np.array([2], np.int32), "origins": origins}


def test_results_and_buffers_are_those_of_the_definition(prepare_quickly: Prepare) -> None:
    shared: dict[str, Any] = {"past_present_share_buffer": 1}
    never_written = _feeds(2)
    for name in ("past_key", "past_value"):
        array = _normal(_BATCH, _HEADS, _ROOM, _HEAD, seed=len(name))
        array[:, :, 3:] = np.inf
        never_written[name] = array
    bias, packed = _normal(3 * _WIDTH), _normal(_BATCH, 1, 3 * _WIDTH)
    grown = {name: _normal(_BATCH, _HEADS, 3, _HEAD, seed=len(name)) for name in ("past_key", "past_value")}
    encoded = {name: _normal(_BATCH, _HEADS, 5, _HEAD, seed=ord(name)) for name in "kv"}
    cases = {
        "first": _model(_feeds(0), **shared),
        "last": _model(_feeds(_ROOM - 1), scale=0.3, **shared),
        "bias": _model(_feeds(3, bias=bias), **shared),
        "mask": _model(_feeds(3, mask=_mask(4)), mask_filter_value=-3.0, **shared),
        "addend": _model(_feeds(3, addend=_normal(1, _HEADS, 1, 4)), **shared),
        "long addend": _model(_feeds(3, addend=_normal(1, _HEADS, 1, _ROOM)), **shared),
        "never written": _model(never_written, **shared),
        "packed": _model(_feeds(2, q=packed, k=None, v=None, bias=bias), **shared),
        "beams": _model(_feeds(4, **_beams()), **shared),
        "masked beams": _model(_feeds(5, mask=_mask(6), **_beams()), **shared),
        "beams with an addend": _model(_feeds(3, addend=_normal(_BATCH, _HEADS, 1, 4), **_beams()), **shared),
        "packed beams": _model(_feeds(4, q=packed, k=None, v=None, **_beams()), **shared),
        "grows": _model({**_feeds(0), **grown, "length": None}),
        "of an encoder": _model({"q": _normal(_BATCH, 1, _WIDTH), **encoded, "bias": bias}, 1),
    }
    for name, (model, given) in cases.items():
        prepared = prepare_quickly(model).model
        assert all(item.domain == "" for item in prepared.graph.node), name
        names = [value.name for value in model.graph.output]
        expected, results = ReferenceModel(model.SerializeToString())(given), run(prepared, given)
        for output, wanted in zip(names, expected, strict=True):
            assert results[output].shape == wanted.shape, name
            np.testing.assert_allclose(results[output], wanted, rtol=1e-5, atol=3e-6, err_msg=name)


def test_lengths_are_rows_of_buffers_so_that_others_are_refused(prepare_quickly: Prepare) -> None:
    model, _ = _model(_feeds(2), past_present_share_buffer=1)
    assert table_rows(prepare_quickly(model).model) == {"length": _ROOM}


@pytest.mark.parametrize(
    ("feeds", "results", "options", "said"),
    [
        (_feeds(1), 3, {}, None),
        (_feeds(1, length=None), 3, {"past_present_share_buffer": 1}, "lacks one of them or past_sequence_length"),
        (_feeds(1, **_beams()), 3, {}, "lacks one of them"),
        (_feeds(1), 4, {"past_present_share_buffer": 1, "output_qk": 1}, "returns its scores"),
        (_feeds(1, mask=_mask(7)), 3, {"past_present_share_buffer": 1}, "masks 7 positions, and .* room for 6"),
    ],
)
def test_what_tells_no_position_is_refused(
    feeds: _Feeds, results: int, options: dict[str, Any], said: str | None
) -> None:
    model, _ = _model(feeds, min(results, 3), **options)
    if results == 4:
        model.graph.node[0].output.append("scores")
        model.graph.output.append(helper.make_tensor_value_info("scores", 1, [None] * 4))
    if said is None:
        expand_operators(model)
        return
    with pytest.raises(UnsupportedModelError, match=said):
        expand_operators(model)
