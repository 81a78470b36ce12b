"""Reduces angles to one turn before sine, cosine and tangent, whose approximations in IREE are of few turns."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite

_KINDS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_MANY = 113
"""Turns that are almost a whole number, 710, of radians: its products with counts below 2**15 have no rounding."""
_TURN = 2 * np.pi
_COARSE = 6.28125
"""A turn's first eight bits; products of these with counts of turns below ``_MANY`` have no rounding."""
_SMALLEST = 2.0**-126
"""The first number of float32 that is not subnormal."""
_LARGEST = 2.0**26
"""Angles from here on are taken for 0: neighbours in float32 are more than a turn apart."""


@node_rewrite("Sin", "Cos", "Tan")
def reduced_angles(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Subtract whole turns from the operand of ``Sin``, ``Cos`` and ``Tan``, in float32.

    IREE 3.13 subtracts quarter turns with constants of one float, so that an angle of 1e5 has an error of 6e-3, and the
    cosine of 3e9 a value of -3e13; to small negative angles it adds one, so that of -1e-30 the sine is 6e-8. Here turns
    are subtracted in parts (Cody and Waite, Software Manual for the Elementary Functions, 1980, chapter 8) from the
    angle's size, which is right up to 2.3e7, and the result of ``Sin`` and ``Tan`` gets the angle's sign.
    """
    kind = editor.element_type(node.input[0])
    if kind not in _KINDS:
        return None
    emit, is_wide = Emitter(editor, node), kind == TensorProto.FLOAT
    angle = node.input[0] if is_wide else emit("Cast", node.input[0], part="widen", to=TensorProto.FLOAT)
    is_odd, output = node.op_type != "Cos", node.output[0] if is_wide else ""
    size = emit("Abs", angle, part="angle_size")
    value = emit.copy([_within_a_turn(emit, size)], "" if is_odd else output)
    if is_odd:
        value = emit("Mul", value, _sign(emit, angle), part="signed", output=output)
    if not is_wide:
        emit("Cast", value, part="narrow", output=node.output[0], to=kind)
    return emit.nodes


def _sign(emit: Emitter, angle: str) -> str:
    """The angle's sign, 1 or -1; of 0 and -0 these themselves."""
    units = emit("Mul", angle, emit.constant(1 / _SMALLEST, "units", np.float32), part="large")
    bounds = (emit.constant(sign, name, np.float32) for sign, name in ((-1.0, "minus_one"), (1.0, "one")))
    return emit("Clip", units, *bounds, part="sign")


def _within_a_turn(emit: Emitter, size: str) -> str:
    """An angle that is not negative, less whole turns; of infinity NaN."""
    whole = round(_MANY * _TURN)
    many = _count(emit, size, _MANY * _TURN, "many")
    rest = _less(emit, size, many, whole, "without_many")
    turns = _count(emit, rest, _TURN, "turns")
    rest = _less(emit, rest, turns, _COARSE, "without_turns")
    rest = _less(emit, rest, turns, _TURN - _COARSE, "within")
    rest = _less(emit, rest, many, _MANY * _TURN - whole, "within_many")
    is_known = emit("Less", size, emit.constant(_LARGEST, "largest", np.float32), part="is_known")
    return emit("Where", is_known, rest, emit("Sub", size, size, part="unknown"), part="angle")


def _count(emit: Emitter, angle: str, unit: float, part: str) -> str:
    inverse = emit.constant(1 / unit, f"{part}_inverse", np.float32)
    return emit("Round", emit("Mul", angle, inverse, part=f"{part}_count"), part=part)


def _less(emit: Emitter, angle: str, count: str, unit: float, part: str) -> str:
    product = emit("Mul", count, emit.constant(unit, f"{part}_unit", np.float32), part=f"{part}_product")
    return emit("Sub", angle, product, part=part)
