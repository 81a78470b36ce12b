"""ONNX's Attention at fixed sizes: tokens whose mask hides every key get zeros, as where a module keeps the caches."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.plugin.onnx_model.builders import run
from tests.plugin.onnx_model.conftest import Prepare

_HEADS, _TOKENS, _WIDTH = 2, 3, 8


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.FLOAT])
@pytest.mark.parametrize("past", [0, 4])
def test_a_token_that_sees_no_key_gets_zeros(prepare_quickly: Prepare, kind: int, past: int, is_causal: int) -> None:
    total, random = past + _TOKENS, np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys("qkv", (1, _TOKENS, _WIDTH))
    shapes |= dict.fromkeys(("past_key", "past_value"), (1, _HEADS, past, _WIDTH // _HEADS)) if past else {}
    given: dict[str, Array] = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    visible = np.ones((_TOKENS, total), np.bool_)
    visible[1], visible[2, :2] = False, False
    given["mask"] = visible if kind == TensorProto.BOOL else np.where(visible, 0, -np.inf).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    names = ["q", "k", "v", "mask", *(["past_key", "past_value"] if past else [])]
    node = helper.make_node(
        "Attention",
        names,
        ["y", *(["key", "value"] if past else [])],
        "attention",
        q_num_heads=_HEADS,
        kv_num_heads=_HEADS,
        is_causal=is_causal,
    )
    outputs = [helper.make_tensor_value_info("y", 1, (1, _TOKENS, _WIDTH))]
    graph = helper.make_graph([node], "graph", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    (right,) = OnnxRuntimeReference(model.SerializeToString(), threads=1)(given)
    assert not right[0, 1].any(), "by ONNX Runtime"
    np.testing.assert_allclose(run(prepare_quickly(model).model, given)["y"], right, rtol=1e-5, atol=1e-6)
