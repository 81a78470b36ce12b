"""Models of one attention over caches that grow, by operators of ONNX Runtime and ONNX: a decoder's block, whose inputs
have no names of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.runtime.driver.signature import Array

HEADS, GROUPS, WIDTH, PAST = 4, 2, 8, 5
DEPTH = HEADS * WIDTH
MICROSOFT = "com.microsoft"
CACHES = ("past_key_values.0.key", "past_key_values.0.value")
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


def feeds(model: ModelProto, tokens: int, past: int = PAST) -> dict[str, Array]:
    """Inputs of a call behind so many positions."""
    sizes = {"batch": 1, "sequence": tokens, "past": past, "total": past + tokens}
    given = dict[str, Array]()
    for value in model.graph.input:
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
        given[value.name] = (
            (np.arange(shape[-1]) % 3 > 0).astype(np.int32)[None] if value.name == "mask" else drawn(*shape)
        )
    return given
