"""Caches that have keys and values in one input, as ONNX Runtime's converter of GPT-2 writes them, are appended to."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.states.grown_caches import Growing, growing_caches
from sartor.onnx_model.states.stacked_caches import append_to_stacks
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference

_HEADS, _WIDTH, _PAST, _NEW = 2, 4, 3, 2


def stacked(*, splits: bool = False, order: tuple[int, int] = (0, 1), version: int = 17) -> ModelProto:
    """Keys and values of a call are appended to those of ``past_0``, and attended to.

    Args:
        splits: whether both are taken by Split, as PyTorch's unbind is exported.
        order: in which both are stacked.
        version: of ONNX's operators.
    """
    held = {"zero": np.array([0]), "first": np.array(0), "second": np.array(1), "axes": np.array([0])}
    named = version < 13

    def axes(operator: str, name: str, output: str) -> NodeProto:
        given: dict[str, Any] = {"axes": [0]} if named else {}
        return helper.make_node(operator, [name, *([] if named else ["axes"])], [output], name=output, **given)

    halves = ("past_key", "past_value")
    if splits:
        taken = [helper.make_node("Split", ["past_0"], ["one", "other"], name="split", axis=0)]
        taken += [axes("Squeeze", name, half) for name, half in zip(("one", "other"), halves, strict=True)]
    else:
        places = zip(("first", "second"), halves, strict=True)
        taken = [helper.make_node("Gather", ["past_0", place], [half], name=half, axis=0) for place, half in places]
    joined = ["keys", "values"]
    nodes = [
        *taken,
        helper.make_node("Concat", ["past_key", "key"], ["keys"], name="keys", axis=-2),
        helper.make_node("Transpose", ["keys"], ["turned"], name="turned", perm=[0, 1, 3, 2]),
        helper.make_node("Softplus", ["turned"], ["read"], name="read"),
        helper.make_node("Softplus", ["key"], ["value"], name="value"),
        helper.make_node("Concat", ["past_value", "value"], ["values"], name="values", axis=-2),
        helper.make_node("MatMul", ["read", "values"], ["y"], name="product"),
        *(axes("Unsqueeze", name, f"raised_{name}") for name in joined),
        helper.make_node("Concat", [f"raised_{joined[each]}" for each in order], ["present_0"], name="stack", axis=0),
    ]
    shapes = {"past_0": (2, 1, _HEADS, "past", _WIDTH), "key": (1, _HEADS, "new", _WIDTH)}
    ends = {"y": (1, _HEADS, _WIDTH, _WIDTH), "present_0": (2, 1, _HEADS, "total", _WIDTH)}
    inputs, results = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in listed.items()]
        for listed in (shapes, ends)
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "stacked", inputs, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def outputs(model: ModelProto) -> list[Array]:
    random = np.random.default_rng(0)
    shapes = {"past_0": (2, 1, _HEADS, _PAST, _WIDTH), "key": (1, _HEADS, _NEW, _WIDTH)}
    given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return OnnxRuntimeReference(model.SerializeToString(), threads=1)(given)


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("version", [11, 17])
def test_one_node_appends_to_both(version: int, *, splits: bool) -> None:
    model = stacked(splits=splits, version=version)
    assert append_to_stacks(model) == ("stack",)
    onnx.checker.check_model(model)
    assert growing_caches(model, {}, finds=True) == (Growing("past_0", "present_0", 3, "present_0"),)
    for one, other in zip(outputs(model), outputs(stacked(splits=splits, version=version)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_values_before_keys_stay_as_they_are() -> None:
    assert append_to_stacks(stacked(order=(1, 0))) == ()
