"""Attentions of other operators over caches that grow, as nodes: they give what ONNX Runtime's operators give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.states.call_sizes import has_several
from sartor.onnx_model.states.cut_caches import cut_caches
from sartor.onnx_model.states.explicit_appends import append_explicitly
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference

HEADS, GROUPS, WIDTH, PAST = 4, 2, 8, 5
DEPTH = HEADS * WIDTH
MICROSOFT = "com.microsoft"
CACHES = ("past_key_values.0.key", "past_key_values.0.value")
OPERATORS = {"Attention", "GroupQueryAttention", "MultiHeadAttention"}
Dims = Mapping[str, Sequence[int | str]]
_random = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return (0.3 * _random.standard_normal(shape)).astype(np.float32)


def made(
    operator: str, inputs: Sequence[str], dims: Dims, held: Mapping[str, Array], outputs: Dims, **attributes: Any
) -> ModelProto:
    """A model of one node, of ONNX Runtime's operators or, without ``num_heads``, of ONNX's."""
    domain = MICROSOFT if "num_heads" in attributes else ""
    node = helper.make_node(operator, inputs, [*outputs], name="attention", domain=domain, **attributes)
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name == "mask" else TensorProto.FLOAT, shape)
        for name, shape in dims.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    graph = helper.make_graph(
        [node], "block", values, results, [numpy_helper.from_array(array, name) for name, array in held.items()]
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_heads(is_masked: int, unidirectional: int) -> ModelProto:
    rows = ("batch", "sequence", DEPTH)
    past, present = (("batch", HEADS, length, WIDTH) for length in ("past", "total"))
    dims: dict[str, Sequence[int | str]] = {**dict.fromkeys("qkv", rows), **dict.fromkeys(CACHES, past)}
    dims |= {"mask": ("batch", "total")} if is_masked else {}
    dims |= {"added": (1, HEADS, "sequence", "total")} if is_masked else {}
    beside = ["mask", "added"] if is_masked else ["", ""]
    outputs = {"y": rows, "present.0.key": present, "present.0.value": present}
    inputs = [*"qkv", "bias", *beside, *CACHES]
    given = {"num_heads": HEADS, "unidirectional": unidirectional}
    return made("MultiHeadAttention", inputs, dims, {"bias": drawn(3 * DEPTH)}, outputs, **given)


def stacked(is_masked: int, unidirectional: int) -> ModelProto:
    rows, cache = ("batch", "sequence", DEPTH), (2, "batch", HEADS)
    dims: dict[str, Sequence[int | str]] = {"x": rows, "past_0": (*cache, "past", WIDTH)}
    dims |= {"mask": ("batch", "total")} if is_masked else {}
    held = {"w": drawn(DEPTH, 3 * DEPTH), "b": drawn(3 * DEPTH)}
    outputs = {"y": rows, "present_0": (*cache, "total", WIDTH)}
    inputs = ["x", "w", "b", "mask" if is_masked else "", "past_0"]
    return made("Attention", inputs, dims, held, outputs, num_heads=HEADS, unidirectional=unidirectional)


def apart(is_masked: int, unidirectional: int) -> ModelProto:
    queries, rows = (("batch", count, "sequence", WIDTH) for count in (HEADS, GROUPS))
    past, present = (("batch", GROUPS, length, WIDTH) for length in ("past", "total"))
    dims: dict[str, Sequence[int | str]] = {"q": queries, "k": rows, "v": rows, **dict.fromkeys(CACHES, past)}
    dims |= {"added": ("sequence", "total")} if is_masked else {}
    outputs = {"y": queries, "present.0.key": present, "present.0.value": present}
    inputs = [*"qkv", "added" if is_masked else "", *CACHES]
    return made("Attention", inputs, dims, {}, outputs, is_causal=unidirectional)


def feeds(model: ModelProto, tokens: int) -> dict[str, Array]:
    sizes = {"batch": 1, "sequence": tokens, "past": PAST, "total": PAST + tokens}
    given = dict[str, Array]()
    for value in model.graph.input:
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
        given[value.name] = (
            (np.arange(shape[-1]) % 3 > 0).astype(np.int32)[None] if value.name == "mask" else drawn(*shape)
        )
    return given


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("is_masked", [0, 1])
@pytest.mark.parametrize("make", [by_heads, stacked, apart])
def test_nodes_give_what_the_operator_gives(make: Any, is_masked: int, unidirectional: int, tokens: int) -> None:
    model = make(is_masked, unidirectional)
    given = feeds(model, tokens)
    right = OnnxRuntimeReference(model.SerializeToString(), threads=1)(given)
    changed = append_explicitly(model, several=tokens > 1)
    if tokens > 1 and not (is_masked or unidirectional):
        assert changed == (), "queries that see later keys stay an operator"
        return
    assert changed == ("attention",)
    assert not OPERATORS & {node.op_type for node in model.graph.node}
    found = OnnxRuntimeReference(model.SerializeToString(), threads=1)(given)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [by_heads, stacked, apart])
def test_inputs_without_a_name_of_tokens_have_the_positions_of_a_call(make: Any) -> None:
    model = make(0, 1)
    assert not has_several(model, {})
    assert has_several(model, {model.graph.input[0].name: (1, 4, DEPTH) if make is not apart else (1, HEADS, 4, WIDTH)})
    append_explicitly(model)
    growing = growing_caches(model, {}, finds=True)
    assert len(growing) == (1 if make is stacked else 2)
    cut = cut_caches(model, growing, {})
    assert cut.sources[0].startswith("positions=1..")
    assert not cut.prompt


@pytest.mark.parametrize("kind", ["ends", "old", "fixed"])
def test_what_has_no_such_form_stays(kind: str) -> None:
    """A mask that tells where keys end, an operator set in which axes are attributes, and caches of a known length."""
    model = by_heads(1, 0)
    if kind == "ends":
        (mask,) = [value for value in model.graph.input if value.name == "mask"]
        del mask.type.tensor_type.shape.dim[1]
    elif kind == "old":
        model.opset_import[0].version = 12
    else:
        for value in model.graph.input:
            if value.name in CACHES:
                value.type.tensor_type.shape.dim[2].dim_value = PAST
    assert append_explicitly(model) == ()
    assert [node.op_type for node in model.graph.node] == ["MultiHeadAttention"]
