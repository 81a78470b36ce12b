"""Writes out remainders of floats, which IREE computes from a rounded product."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rewrite_nodes

_KINDS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_SPLITTER = 2.0**12 + 1
"""Separates the upper 12 bits of a float32 from the others."""


def exact_remainders(model: ModelProto) -> tuple[str, ...]:
    """Compute C's ``fmod`` in float32 without rounding for quotients below 2**24; returns the names of the nodes.

    IREE 3.13 subtracts the rounded product of quotient and divisor, which in float16 leaves 0 of 10000 by 1.5, and NaN
    where the divisor is infinite. Here both are halves of 12 bits, whose products have no rounding (T. J. Dekker, A
    floating-point technique for extending the available precision, 1971).
    """
    return rewrite_nodes(model, _written)


def _written(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "Mod" or not attributes(node).get("fmod", 0):
        return None
    kind = editor.element_type(node.input[0])
    if kind not in _KINDS:
        return None
    emit = Emitter(editor, node)
    value, divisor = (_wide(emit, name) for name in node.input)
    size, by = emit("Abs", value, part="size"), emit("Abs", divisor, part="divisor_size")
    infinity = emit.constant(math.inf, "infinity", np.float32)
    is_kept = emit("And", emit("Equal", by, infinity, part="infinite"), emit("Less", size, infinity, part="finite"))
    rest = emit("Where", is_kept, size, _rest(emit, size, by), part="rest")
    is_negative = emit("Less", value, emit.constant(0.0, "zero", np.float32), part="negative")
    signed = emit("Where", is_negative, emit("Neg", rest, part="opposite"), rest, part="signed")
    emit("Cast", signed, part="result", output=node.output[0], to=kind)
    return emit.nodes


def _wide(emit: Emitter, name: str) -> str:
    if emit.editor.element_type(name) == TensorProto.FLOAT:
        return name
    return emit("Cast", name, part="widen", to=TensorProto.FLOAT)


def _rest(emit: Emitter, size: str, by: str) -> str:
    """What is left of a size; a quotient that was rounded is wrong by one at most."""
    quotient = emit("Floor", emit("Div", size, by, part="ratio"), part="quotient")
    rest = size
    for first in _halves(emit, quotient, "quotient"):
        for second in _halves(emit, by, "divisor"):
            rest = emit("Sub", rest, emit("Mul", first, second, part="product"), part="less")
    is_below = emit("Less", rest, emit.constant(0.0, "zero", np.float32), part="below")
    rest = emit("Where", is_below, emit("Add", rest, by, part="more"), rest, part="not_below")
    is_above = emit("GreaterOrEqual", rest, by, part="above")
    return emit("Where", is_above, emit("Sub", rest, by, part="once_less"), rest, part="not_above")


def _halves(emit: Emitter, name: str, part: str) -> tuple[str, str]:
    """The upper and the lower bits of a value, which add up to it; a large one, whose product is infinite, is whole."""
    scaled = emit("Mul", name, emit.constant(_SPLITTER, "splitter", np.float32), part=f"{part}_scaled")
    upper = emit("Sub", scaled, emit("Sub", scaled, name, part=f"{part}_rest"), part=f"{part}_upper")
    is_number = emit("Less", scaled, emit.constant(math.inf, "infinity", np.float32), part=f"{part}_small")
    upper = emit("Where", is_number, upper, name, part=f"{part}_high")
    return upper, emit("Sub", name, upper, part=f"{part}_low")
