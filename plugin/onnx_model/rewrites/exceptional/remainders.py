"""Writes out remainders of floats, which IREE computes from a rounded product."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

_COMPUTED_IN: Mapping[int, int] = {
    TensorProto.FLOAT: TensorProto.FLOAT,
    TensorProto.FLOAT16: TensorProto.FLOAT,
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.DOUBLE: TensorProto.DOUBLE,
}
_SPLITTERS: Mapping[int, float] = {TensorProto.FLOAT: 2.0**12 + 1, TensorProto.DOUBLE: 2.0**27 + 1}
"""Separate the upper half of a number's bits from the others."""
# Float64 has the same numbers, as float32 can hold them: code may be compiled such that it computes in that.
_STAGE = 2.0**23
"""Quotients below it are found in one stage, and those below its square in two."""
_SCALE = 2.0**64
"""Moves divisors to the middle of float32's range, where nothing that follows ends it."""


@node_rewrite("Mod")
def exact_remainders(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Compute C's ``fmod``, and Python's ``%`` in float64, without rounding for quotients below 2**46.

    Larger quotients leave 0. IREE 3.13 subtracts the rounded product of quotient and divisor, which in float16 leaves 0
    of 10000 by 1.5, and NaN where the divisor is infinite. Here both are halves of 12 bits, or 26 in float64, whose
    products have no rounding (T. J. Dekker, A floating-point technique for extending the available precision, 1971).
    """
    kind = editor.element_type(node.input[0])
    if kind not in _COMPUTED_IN:
        return None
    is_signed_by_divisor = not attributes(node).get("fmod", 0)
    # IREE's code for other types is right; for float64 it calls a library.
    if is_signed_by_divisor and kind != TensorProto.DOUBLE:
        return None
    emit = Emitter(editor, node)
    value, divisor = (_wide(emit, name) for name in node.input)
    size, by = emit("Abs", value, part="size"), emit("Abs", divisor, part="divisor_size")
    is_kept = emit("Less", size, by, part="smaller")
    rest = emit("Where", is_kept, size, _scaled_rest(emit, size, by), part="rest")
    is_negative = emit("Less", value, _number(emit, 0.0, "zero"), part="negative")
    signed = emit("Where", is_negative, emit("Neg", rest, part="opposite"), rest, part="signed")
    if is_signed_by_divisor:
        signed = _with_sign_of(emit, divisor, signed)
    emit("Cast", signed, part="result", output=node.output[0], to=kind)
    return emit.nodes


def _with_sign_of(emit: Emitter, divisor: str, rest: str) -> str:
    """The remainder that has the divisor's sign, as Python's, of the one that has the dividend's."""
    zero = _number(emit, 0.0, "zero")
    signs = (emit("Less", name, zero, part="is_negative") for name in (rest, divisor))
    is_nothing = emit("Equal", rest, zero, part="is_nothing")
    is_other = emit(
        "And", emit("Xor", *signs, part="differs"), emit("Not", is_nothing, part="is_some"), part="is_other"
    )
    return emit("Where", is_other, emit("Add", rest, divisor, part="moved"), rest, part="by_divisor")


def _kind(emit: Emitter) -> int:
    """The type that the remainder is computed in."""
    return _COMPUTED_IN[emit.editor.element_type(emit.node.input[0])]


def _wide(emit: Emitter, name: str) -> str:
    if emit.editor.element_type(name) == _kind(emit):
        return name
    return emit("Cast", name, part="widen", to=_kind(emit))


def _scaled_rest(emit: Emitter, size: str, by: str) -> str:
    """What is left of a size that is not below the divisor; 0 by too large a quotient, and NaN where there is none."""
    is_small = emit("Less", by, _number(emit, 1.0, "one"), part="small")
    up, down = _number(emit, _SCALE, "up"), _number(emit, 1 / _SCALE, "down")
    scale = emit("Where", is_small, up, down, part="scale")
    scaled, divisor = emit("Mul", size, scale, part="scaled"), emit("Mul", by, scale, part="divisor_scaled")
    coarse = emit("Mul", divisor, _number(emit, _STAGE, "stage"), part="coarse")
    rest = _rest(emit, _rest(emit, scaled, coarse, "coarse_ratio"), divisor)
    bound = emit("Mul", coarse, _number(emit, _STAGE, "stage"), part="bound")
    is_known = emit("Less", scaled, bound, part="known")
    nothing = emit("Div", emit("Sub", size, size, part="nothing"), by, part="unknown")
    return emit("Where", is_known, emit("Div", rest, scale, part="unscaled"), nothing, part="any_rest")


def _rest(emit: Emitter, size: str, by: str, part: str = "") -> str:
    """What is left of a size; a quotient that was rounded is wrong by one at most."""
    quotient = emit("Floor", emit("Div", size, by, part=part), part="quotient")
    rest = size
    for first in _halves(emit, quotient, "quotient"):
        for second in _halves(emit, by, "divisor"):
            rest = emit("Sub", rest, emit("Mul", first, second, part="product"), part="less")
    is_below = emit("Less", rest, _number(emit, 0.0, "zero"), part="below")
    rest = emit("Where", is_below, emit("Add", rest, by, part="more"), rest, part="not_below")
    is_above = emit("GreaterOrEqual", rest, by, part="above")
    return emit("Where", is_above, emit("Sub", rest, by, part="once_less"), rest, part="not_above")


def _halves(emit: Emitter, name: str, part: str) -> tuple[str, str]:
    """The upper and the lower bits of a value, which add up to it."""
    scaled = emit("Mul", name, _number(emit, _SPLITTERS[_kind(emit)], "splitter"), part=f"{part}_split")
    upper = emit("Sub", scaled, emit("Sub", scaled, name, part=f"{part}_rest"), part=f"{part}_upper")
    return upper, emit("Sub", name, upper, part=f"{part}_lower")


def _number(emit: Emitter, value: float, hint: str) -> str:
    return emit.shared_constant(np.array(value, helper.tensor_dtype_to_np_dtype(_kind(emit))), hint)
