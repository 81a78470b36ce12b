"""Attentions of other operators over caches that grow, as nodes: they give what ONNX Runtime's operators give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from sartor.errors import UsageError
from sartor.onnx_model.states.call_sizes import has_several
from sartor.onnx_model.states.cut_caches import cut_caches
from sartor.onnx_model.states.explicit_appends import append_explicitly
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.runtime.reference import OnnxRuntimeReference
from tests.attention_models import CACHES, DEPTH, HEADS, PAST, WIDTH, apart, by_heads, feeds, stacked

OPERATORS = {"Attention", "GroupQueryAttention", "MultiHeadAttention"}


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
    assert not cut.prompts


@pytest.mark.parametrize("dims", [("sequence", DEPTH), (1, DEPTH), (DEPTH,)])
def test_features_and_angles_of_positions_are_no_positions_of_a_call(dims: tuple[int | str, ...]) -> None:
    model = by_heads(0, 1)
    model.graph.node[0].output[0] = "attended"
    model.graph.node.append(helper.make_node("Mul", ["attended", "beside"], ["y"], name="scaled"))
    model.graph.input.append(helper.make_tensor_value_info("beside", TensorProto.FLOAT, dims))
    assert not has_several(model, {})
    append_explicitly(model)
    assert cut_caches(model, growing_caches(model, {}, finds=True), {}).sources[0].startswith("positions=1..")


def test_a_shape_of_another_rank_is_refused() -> None:
    model, given = apart(0, 1), {"q": (1, 4)}
    append_explicitly(model, several=has_several(model, given))
    with pytest.raises(UsageError, match="--shape gives 'q' 2 dimensions, and the model declares 4"):
        cut_caches(model, growing_caches(model, {}, finds=True), given)


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
