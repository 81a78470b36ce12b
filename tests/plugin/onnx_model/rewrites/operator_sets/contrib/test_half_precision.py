"""ONNX Runtime's operators behind each other in half precision: none of them is computed in another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter, UnknownTypeError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT16, MS, Value, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_WIDTH = 32
_ALLOWED = 3e-3


def _activation(operator: str) -> NodeProto:
    operands = ["m", "c"] if operator in ("BiasGelu", "FastGelu") else ["m"]
    return node(operator, operands, ["y"], domain=MS)


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
@pytest.mark.parametrize("skip", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_a_block_of_a_transformer(skip: str, operator: str, prepare_quickly: Prepare) -> None:
    operands = ["x", "r", "g"] + (["b"] if skip == "SkipLayerNormalization" else [])
    nodes = [
        node(skip, operands, ["n"], domain=MS, epsilon=1e-5),
        node("MatMul", ["n", "w"], ["m"]),
        _activation(operator),
    ]
    constants: dict[str, Any] = {name: weights(_WIDTH, seed=seed) for seed, name in enumerate(("g", "b", "c"))}
    constants["w"] = weights(_WIDTH, _WIDTH, scale=0.2)
    halves = {name: values.astype(np.float16) for name, values in constants.items()}
    inputs: list[Value] = [("x", (1, 4, _WIDTH), FLOAT16), ("r", (1, 4, _WIDTH), FLOAT16)]
    built = model(nodes, inputs, [("y", (1, 4, _WIDTH), FLOAT16)], halves)
    prepared, feeds = prepare_quickly(built).model, sample_inputs(built, 3)
    kinds = {value.type.tensor_type.elem_type for value in prepared.graph.value_info if value.name == "m"}
    assert kinds == {TensorProto.FLOAT16}
    assert relative_error(run(prepared, feeds)["y"], run(built, feeds)["y"]) <= _ALLOWED


@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_by_weights_in_few_bits_between_others(bits: int, prepare_quickly: Prepare) -> None:
    random = np.random.default_rng(0)
    packed = random.integers(0, 256, (_WIDTH, 1, _WIDTH * bits // 8)).astype(np.uint8)
    scales = (random.standard_normal((_WIDTH, 1)) * 0.01).astype(np.float16)
    nodes = [
        node("QuickGelu", ["x"], ["q"], domain=MS),
        node("MatMulNBits", ["q", "w", "s"], ["m"], domain=MS, K=_WIDTH, N=_WIDTH, bits=bits, block_size=_WIDTH),
        node("Gelu", ["m"], ["y"], domain=MS),
    ]
    built = model(
        nodes, [("x", (3, _WIDTH), FLOAT16)], [("y", (3, _WIDTH), FLOAT16)], {"w": packed, "s": scales}, opset=21
    )
    feeds = sample_inputs(built, 3)
    assert relative_error(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"]) <= _ALLOWED


def test_no_type_is_guessed() -> None:
    """Of what ONNX Runtime's operators read."""
    built = model([node("Gelu", ["q"], ["y"], domain=MS)], [("x", (2, 8), FLOAT16)], ["y"])
    emit = Emitter(GraphEditor(built.graph), built.graph.node[0])
    with pytest.raises(UnknownTypeError, match=r"node 'gelu' .* reads 'q', whose type is not known"):
        emit.like(0.5, "q", "half")
