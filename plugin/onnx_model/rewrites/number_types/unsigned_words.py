"""Arithmetic on unsigned words in signed types: 16 bits in int32, 32 and 64 bits in int64, 64 with equal bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import attributes

RANGES: Mapping[int, int] = {TensorProto.UINT16: 2**16, TensorProto.UINT32: 2**32}
"""How many values a type has that is computed in a wider one."""

_WIDE: Mapping[int, Any] = {TensorProto.UINT16: np.int32, TensorProto.UINT32: np.int64}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_LOWEST = -(2**63)

# Right on the values, which are not negative in the wider type.
_PLAIN = frozenset(
    {
        *("ArgMax", "ArgMin", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Clip", "Div", "Equal", "Greater"),
        *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Pow", "ReduceMax", "ReduceMin", "TopK"),
    }
)
# Right on the lowest bits.
_WRAPPING = frozenset({"Add", "BitwiseNot", "Mul", "ReduceSum", "Sub", "Sum"})
# The same bits whether there is a sign or not.
_SAME_BITS = frozenset({"Add", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal", "Mul", "Sub", "Sum"})
# What depends on the order of values alone.
_ORDERED = frozenset(
    {
        *("ArgMax", "ArgMin", "Clip", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"),
        *("ReduceMax", "ReduceMin", "TopK"),
    }
)


def wrapped(emit: Emitter, value: str, element: int, output: str = "") -> str:
    """The lowest bits of a value, of the type that ``element`` is computed in."""
    count = emit.shared_constant(np.asarray(RANGES[element], _WIDE[element]), "range")
    return emit("Mod", value, count, part="" if output else "wrap", output=output)


def lower(emit: Emitter, types: Mapping[str, int]) -> bool:
    """Emit a node of unsigned words in terms of signed ones; False if that is not known.

    Args:
        emit: takes the nodes.
        types: declared element type of each value.
    """
    kinds = {types.get(name) for name in (*emit.node.input, *emit.node.output)}
    if TensorProto.UINT64 not in kinds:
        return _lower_word(emit, types)
    return not kinds & RANGES.keys() and _lower_long(emit, types)


def _lower_word(emit: Emitter, types: Mapping[str, int]) -> bool:
    node = emit.node
    if node.op_type in _PLAIN:
        emit.nodes.append(node)
    elif node.op_type in _WRAPPING:
        wrapped(emit, emit.copy(list(node.input)), types[node.output[0]], node.output[0])
    elif node.op_type == "BitShift":
        _shift_word(emit, types[node.input[0]])
    else:
        return False
    return True


def _shift_word(emit: Emitter, element: int) -> None:
    width = 16 if element == TensorProto.UINT16 else 32
    value, count, output = *emit.node.input, emit.node.output[0]
    bound = emit.constant(width, "width", _WIDE[element])
    powers = emit.constant(np.array([2**index for index in range(width)] + [0], _WIDE[element]), "powers")
    if attributes(emit.node)["direction"] == "LEFT":
        power = emit("Gather", powers, emit("Min", count, bound, part="count"), part="power", axis=0)
        product = emit("Mul", value, power, part="shift")
        wrapped(emit, product, element, output)
        return
    over = emit("GreaterOrEqual", count, bound, part="over")
    last = emit.constant(width - 1, "last", _WIDE[element])
    power = emit("Gather", powers, emit("Min", count, last, part="count"), part="power", axis=0)
    quotient = emit("Div", value, power, part="shift")
    emit("Where", over, emit.constant(0, "none", _WIDE[element]), quotient, output=output)


def _lower_long(emit: Emitter, types: Mapping[str, int]) -> bool:
    node = emit.node
    if node.op_type in _SAME_BITS or (node.op_type == "Pow" and types[node.input[0]] != TensorProto.UINT64):
        emit.nodes.append(node)
    elif node.op_type in _ORDERED:
        _ordered(emit, types)
    elif node.op_type == "Div":
        _divide(emit, node.input[0], node.input[1], node.output[0])
    elif node.op_type == "Mod":
        quotient = _divide(emit, node.input[0], node.input[1])
        emit("Sub", node.input[0], emit("Mul", quotient, node.input[1], part="multiple"), output=node.output[0])
    elif node.op_type == "BitShift":
        _shift_long(emit)
    else:
        return False
    return True


def _ordered(emit: Emitter, types: Mapping[str, int]) -> None:
    """With the highest bit flipped, signed comparison orders values as unsigned comparison does."""
    node = emit.node
    operands = [_flipped(emit, name) if types.get(name) == TensorProto.UINT64 else name for name in node.input]
    is_long = types[node.output[0]] == TensorProto.UINT64
    first = "" if is_long else node.output[0]
    results = emit.many(node.op_type, *operands, outputs=(first, *node.output[1:]), **attributes(node))
    if is_long:
        emit("Add", results[0], _constant(emit, _LOWEST, "sign"), part="unflip", output=node.output[0])


def _flipped(emit: Emitter, name: str) -> str:
    return emit("Add", name, _constant(emit, _LOWEST, "sign"), part="flip")


def _constant(emit: Emitter, value: int, hint: str) -> str:
    return emit.shared_constant(np.asarray(value, np.int64), hint)


def _is_negative(emit: Emitter, name: str) -> str:
    return emit("Less", name, _constant(emit, 0, "zero"), part="is_high")


def _low_bits(emit: Emitter, name: str) -> str:
    """A value without its highest bit."""
    return emit("Where", _is_negative(emit, name), _flipped(emit, name), name, part="low_bits")


def _half(emit: Emitter, name: str) -> str:
    """An unsigned value divided by two."""
    half = emit("Div", _low_bits(emit, name), _constant(emit, 2, "two"), part="halve")
    quarter, zero = _constant(emit, 2**62, "quarter"), _constant(emit, 0, "zero")
    high = emit("Where", _is_negative(emit, name), quarter, zero, part="high_half")
    return emit("Add", half, high, part="half")


def _divide(emit: Emitter, value: str, by: str, output: str = "") -> str:
    """Unsigned division by a signed one (Warren, Hacker's Delight, 2nd edition, section 9-3).

    By a divisor of 2**63 and more the quotient is whether the value is not below it.
    """
    one, zero = _constant(emit, 1, "one"), _constant(emit, 0, "zero")
    is_large = _is_negative(emit, by)
    divisor = emit("Where", is_large, one, by, part="divisor")
    quotient = emit("Div", _half(emit, value), divisor, part="quotient")
    quotient = emit("Add", quotient, quotient, part="twice")
    rest = emit("Sub", value, emit("Mul", quotient, divisor, part="product"), part="rest")
    more = emit("GreaterOrEqual", _flipped(emit, rest), _flipped(emit, divisor), part="more")
    small = emit("Add", quotient, emit("Where", more, one, zero, part="step"), part="small")
    above = emit("GreaterOrEqual", _flipped(emit, value), _flipped(emit, by), part="above")
    large = emit("Where", above, one, zero, part="large")
    return emit("Where", is_large, large, small, part="" if output else "divided", output=output)


def _shift_long(emit: Emitter) -> None:
    value, count, output = *emit.node.input, emit.node.output[0]
    zero = _constant(emit, 0, "zero")
    # A count of 64 and more, which is negative if it is large enough, leaves nothing.
    index = emit("Mod", count, _constant(emit, 64, "width"), part="count")
    inside = emit("Equal", count, index, part="inside")
    powers = np.array([2**exponent for exponent in range(63)] + [_LOWEST], np.int64)
    power = emit("Gather", emit.constant(powers, "powers"), index, part="power", axis=0)
    if attributes(emit.node)["direction"] == "LEFT":
        shifted = emit("Mul", value, power, part="shift")
    else:
        shifted = emit("Div", _low_bits(emit, value), power, part="shift_low")
        bit = emit("Gather", emit.constant(powers[::-1].copy(), "bits"), index, part="bit", axis=0)
        high = emit("Where", _is_negative(emit, value), bit, zero, part="shift_high")
        shifted = emit("Add", shifted, high, part="shift")
    emit("Where", inside, shifted, zero, output=output)


def to_long(emit: Emitter, value: str, source: int, output: str) -> None:
    """A value of another type as uint64."""
    if source not in _FLOATS:
        emit("Cast", value, output=output, to=TensorProto.INT64)
        return
    bound = emit.like(2.0**63, value, "bound")
    is_large = emit("GreaterOrEqual", value, bound, part="is_large")
    less = emit("Where", is_large, emit("Sub", value, bound, part="rest"), value, part="less")
    whole = emit("Cast", less, part="whole", to=TensorProto.INT64)
    high = emit("Where", is_large, _constant(emit, _LOWEST, "sign"), _constant(emit, 0, "zero"), part="high")
    emit("Add", whole, high, output=output)


def from_long(emit: Emitter, value: str, target: int, output: str) -> None:
    """A uint64 as a value of another type."""
    if target not in _FLOATS:
        emit("Cast", value, output=output, to=target)
        return
    # The lost bit is kept in the lowest, so that the half is rounded as the whole would be.
    half, two = _half(emit, value), _constant(emit, 2, "two")
    lost, lowest = emit("Mod", value, two, part="odd"), emit("Mod", half, two, part="half_odd")
    sticky = emit("Max", emit("Sub", lost, lowest, part="missing"), _constant(emit, 0, "zero"), part="sticky")
    half = emit("Cast", emit("Add", half, sticky, part="half_bits"), part="half_value", to=target)
    small = emit("Cast", value, part="small", to=target)
    twice = emit("Add", half, half, part="large")
    emit("Where", _is_negative(emit, value), twice, small, output=output)
