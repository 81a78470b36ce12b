"""GroupQueryAttention over caches that grow, as nodes: they give what ONNX Runtime's operator gives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.states.call_sizes import has_several, tokens_of
from sartor.onnx_model.states.cut_caches import cut_caches
from sartor.onnx_model.states.explicit_appends import OPERATOR, append_explicitly
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.cache_models import Decoder

DECODER = Decoder(width=16, has_mask=True, is_fused=True)
PAST = 5


def feeds(tokens: int = 1, decoder: Decoder = DECODER) -> dict[str, Array]:
    random, shape = np.random.default_rng(0), (1, decoder.groups, PAST, decoder.width)
    caches = [f"past_key_values.{layer}.{kind}" for layer in range(decoder.layers) for kind in ("key", "value")]
    places = {"input_ids": np.full((1, tokens), 3), "position_ids": PAST + np.arange(tokens)[None]}
    mask = {"attention_mask": np.ones((1, PAST + tokens), np.int64)} if decoder.has_mask else {}
    return {**places, **mask, **{name: random.standard_normal(shape).astype(np.float32) for name in caches}}


def outputs(model: ModelProto, given: Mapping[str, Array]) -> list[Array]:
    return OnnxRuntimeReference(model.SerializeToString(), threads=1)(dict(given))


@pytest.mark.parametrize("tokens", [1, 4])
def test_nodes_give_what_the_operator_gives(tokens: int) -> None:
    model, given = DECODER.model(), feeds(tokens)
    assert append_explicitly(model, several=tokens > 1) == ("attention_0", "attention_1")
    assert OPERATOR not in {node.op_type for node in model.graph.node}
    for one, other in zip(outputs(model, given), outputs(DECODER.model(), given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("declared", "given", "several"), [(1, {}, False), (4, {}, True)])
def test_a_call_has_as_many_tokens_as_the_model_declares(
    declared: int, given: dict[str, tuple[int, ...]], *, several: bool
) -> None:
    model = DECODER.model()
    assert not has_several(model, {})
    for value in model.graph.input:
        if value.name in ("input_ids", "position_ids"):
            value.type.tensor_type.shape.dim[1].dim_value = declared
    assert has_several(model, given) is several
    append_explicitly(model, several=several)
    cut = cut_caches(model, growing_caches(model, {}, finds=True), {"input_ids": (1, declared), **given})
    assert cut.sources[0] == f"positions={declared}..{DECODER.positions}, as long as the table 'c1'"
    assert has_several(DECODER.model(), {"input_ids": (1, 4)})


@pytest.mark.parametrize("tokens", [1, 4])
def test_nodes_give_what_onnx_s_operator_gives(tokens: int) -> None:
    decoder = Decoder(width=8, is_standard=True)
    model, given = decoder.model(), feeds(tokens, decoder)
    assert append_explicitly(model, several=tokens > 1) == ("attention_0", "attention_1")
    assert not {"Attention", OPERATOR} & {node.op_type for node in model.graph.node}
    for one, other in zip(outputs(model, given), outputs(decoder.model(), given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def masked(kind: int, shape: tuple[int | str, ...], *, is_causal: bool) -> ModelProto:
    """A decoder whose attentions read a mask, an input of the model."""
    model = Decoder(width=8, is_standard=True).model()
    model.graph.input.append(helper.make_tensor_value_info("mask", kind, shape))
    for node in model.graph.node:
        if node.op_type == "Attention":
            node.input[3] = "mask"
            for attribute in node.attribute:
                if attribute.name == "is_causal":
                    attribute.i = int(is_causal)
    return model


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize(
    ("kind", "shape", "is_causal"),
    [
        (TensorProto.BOOL, (1, 1, "sequence", "total"), False),
        (TensorProto.FLOAT, ("sequence", "total"), True),
        (TensorProto.FLOAT, ("batch", 4, "sequence", "total"), False),
    ],
)
def test_masks_of_onnx_s_operator_are_added(
    kind: int, shape: tuple[int | str, ...], tokens: int, *, is_causal: bool
) -> None:
    model, given = masked(kind, shape, is_causal=is_causal), feeds(tokens, Decoder(width=8, is_standard=True))
    sizes = {"batch": 1, "sequence": tokens, "total": PAST + tokens}
    known = [size if isinstance(size, int) else sizes[size] for size in shape]
    numbers = np.random.default_rng(1).standard_normal(known)
    given["mask"] = numbers > -1 if kind == TensorProto.BOOL else numbers.astype(np.float32)
    right = outputs(model, given)
    assert append_explicitly(model, several=tokens > 1) == ("attention_0", "attention_1")
    for one, other in zip(outputs(model, given), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.FLOAT])
@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("tokens", [1, 4])
def test_a_token_that_sees_no_key_gets_zeros(kind: int, rank: int, tokens: int, *, is_causal: bool) -> None:
    """As of ONNX Runtime and ONNX: a call that is filled up with a token in front, which no other sees. Another one
    sees later tokens alone, which its place hides."""
    shape = ("batch", 4, "sequence", "total")[4 - rank :]
    model, given = masked(kind, shape, is_causal=is_causal), feeds(tokens, Decoder(width=8))
    visible = np.ones([1, 4, tokens, PAST + tokens][4 - rank :], np.bool_)
    visible[..., 0, :], visible[..., PAST] = False, False
    if tokens > 1:
        visible[..., 2, : PAST + 3] = False
    if rank > 2:
        visible[..., 1, 0, PAST] = True
    given["mask"] = visible if kind == TensorProto.BOOL else np.where(visible, 0, -np.inf).astype(np.float32)
    right = outputs(model, given)
    append_explicitly(model, several=tokens > 1)
    found = outputs(model, given)
    assert all(np.isfinite(array).all() for array in found)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [None, (1, 1, 1, 3)])
def test_an_attention_with_a_mask_that_may_be_short_stays(shape: tuple[int, ...] | None) -> None:
    model = masked(TensorProto.FLOAT, shape or (1,), is_causal=True)
    if shape is None:
        del model.graph.input[-1]
    assert append_explicitly(model) == ()


@pytest.mark.parametrize("fixed", [0, 1])
def test_an_attention_whose_past_has_a_fixed_length_leaves_nothing_that_others_read(fixed: int) -> None:
    decoder = Decoder(width=8, is_standard=True)
    model, given = decoder.model(), feeds(4, decoder)
    for value in model.graph.input:
        if value.name.startswith(f"past_key_values.{fixed}."):
            value.type.tensor_type.shape.dim[2].dim_value = PAST
    right = outputs(model, given)
    assert append_explicitly(model, several=True) == (f"attention_{1 - fixed}",)
    for one, other in zip(outputs(model, given), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"position_ids": 3, "token_type_ids": 2, "input_ids": 2}, "input_ids"),
        ({"position_ids": 2, "inputs_embeds": 3}, "inputs_embeds"),
        ({"decoder_tokens": 2, "inputs_embeds": 3}, "decoder_tokens"),
        ({"position_ids": 3, "input_ids": 3}, ""),
        ({"position_ids": 2, "encoder_input_ids": 2}, "position_ids"),
    ],
)
def test_tokens_are_no_positions_or_types(inputs: dict[str, int], expected: str) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, [1] * rank) for name, rank in inputs.items()]
    assert tokens_of(helper.make_model(helper.make_graph([], "inputs", values, []))) == expected


def test_places_along_three_axes_tell_how_many_tokens_a_call_has_by_the_last() -> None:
    value = helper.make_tensor_value_info("position_ids", TensorProto.INT64, [3, 2, 1])
    assert not has_several(helper.make_model(helper.make_graph([], "inputs", [value], [])), {})
    value.type.tensor_type.shape.dim[2].dim_value = 4
    assert has_several(helper.make_model(helper.make_graph([], "inputs", [value], [])), {})


def model_with(values: Mapping[str, float | str]) -> ModelProto:
    model = DECODER.model()
    for node in model.graph.node:
        if node.op_type == OPERATOR:
            node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())
    return model


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("attribute", [{"softcap": 0.5}, {"local_window_size": 3}, {"smooth_softmax": 1}])
def test_nodes_cap_scores_and_have_windows_and_sinks(attribute: dict[str, float], tokens: int) -> None:
    model, given = model_with(attribute), feeds(tokens)
    right, plain = outputs(model, given), outputs(DECODER.model(), given)
    assert np.abs(right[0] - plain[0]).max() > 1e-3, "the attribute counts"
    assert append_explicitly(model, several=tokens > 1) == ("attention_0", "attention_1")
    for one, other in zip(outputs(model, given), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("are_computed", [False, True])
@pytest.mark.parametrize(("tokens", "kind"), [(1, "PER_TENSOR"), (4, "PER_CHANNEL")])
def test_caches_in_8_bits_get_codes_of_new_rows(tokens: int, kind: str, *, are_computed: bool) -> None:
    model, given = model_with({"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8}), feeds(tokens)
    count = 1 if kind == "PER_TENSOR" else DECODER.groups * DECODER.width
    scales = np.linspace(0.01, 0.03, count, dtype=np.float32)
    if are_computed:
        made = helper.make_node("Constant", [], ["scales"], value=numpy_helper.from_array(scales))
        model.graph.node.insert(0, made)
    else:
        model.graph.initializer.append(numpy_helper.from_array(scales, "scales"))
    for value in (*model.graph.input, *model.graph.output):
        if value.name in given and "past" in value.name:
            given[value.name] = np.rint(given[value.name] * 40).astype(np.int8)
        if value.name.startswith(("past", "present")):
            value.type.tensor_type.elem_type = TensorProto.INT8
    for node in model.graph.node:
        if node.op_type == OPERATOR:
            node.input.extend(["", "", "", "scales", "scales"])
    right = outputs(model, given)
    assert append_explicitly(model, several=tokens > 1) == ("attention_0", "attention_1")
    assert len(growing_caches(model, {}, finds=True)) == 4
    for one, other in zip(outputs(model, given), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 4])
def test_sinks_of_heads_take_part_in_sums(tokens: int) -> None:
    model, given = DECODER.model(), feeds(tokens)
    sinks = np.linspace(-1, 2, DECODER.heads, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(sinks, "sinks"))
    for node in model.graph.node:
        if node.op_type == OPERATOR:
            node.input.extend(["", "", "sinks"])
    right = outputs(model, given)
    assert append_explicitly(model, several=tokens > 1) == ("attention_0", "attention_1")
    for one, other in zip(outputs(model, given), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_window_of_no_key_stays_an_operator() -> None:
    assert not append_explicitly(model_with({"local_window_size": 0}))


def test_attributes_that_are_written_out_and_off_do_not_count() -> None:
    off: dict[str, float | str] = {"softcap": 0.0, "local_window_size": -1, "smooth_softmax": 0, "qk_output": 0}
    off |= {"causal": 1, "sliding_window_cache": 0, "kv_cache_bit_width": 0, "qk_norm_epsilon": 1e-2}
    model = model_with({**off, "k_quant_type": "NONE", "v_quant_type": "NONE"})
    right = outputs(model, feeds())
    assert append_explicitly(model) == ("attention_0", "attention_1")
    for one, other in zip(outputs(model, feeds()), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
