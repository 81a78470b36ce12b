"""Powers of integers by repeated squaring: IREE computes them in floating point, and constant ones not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter

_SIGNED = (TensorProto.INT32, TensorProto.INT64)
_BITS = 6
"""Of exponents that matter: with larger ones only 0, 1 and -1 have powers that are 64-bit integers."""
_EVEN = 2.0**62
"""Floats beyond this exponent are even, as it is itself, and give the same 64-bit integers."""
_ROUNDING = 2.0**-19
"""The relative error of a power in float32 that an integer of 32 bits holds."""


def is_integer_power(emit: Emitter) -> bool:
    """Whether base and exponent of a Pow are signed integers; those of a constant exponent may be whole floats."""
    base, exponent = (emit.editor.element_type(name) for name in emit.node.input)
    known = emit.editor.constant(emit.node.input[1])
    is_whole = known is not None and np.isfinite(known).all() and not (np.asarray(known, np.float64) % 1).any()
    return base in _SIGNED and (exponent in _SIGNED or bool(is_whole))


def emit_integer_power(emit: Emitter) -> None:
    """The power of whole numbers as the node's output."""
    exponent = emit.node.input[1]
    if emit.editor.element_type(exponent) != TensorProto.INT64:
        exponent = emit("Cast", exponent, part="exponent", to=TensorProto.INT64)
    _repeated_squares(emit, exponent, output=emit.node.output[0])


def emit_mixed_power(emit: Emitter, power: str, exponent: str, kind: np.dtype[Any]) -> None:
    """The power of an integer to a float as the node's output, without its fraction.

    Args:
        emit: of the node.
        power: the power in floating point.
        exponent: the exponents in the same type, of which whole ones have exact powers; empty if none is whole.
        kind: that type.
    """
    output, element = emit.node.output[0], emit.editor.element_type(emit.node.input[0])
    settled = _settled(emit, power, kind)
    if not exponent:
        emit("Cast", settled, part="cast", output=output, to=element)
        return
    truncated = emit("Cast", settled, part="cast", to=element)
    above = emit("Max", exponent, emit.constant(-_EVEN, "lowest", kind), part="above")
    bounded = emit("Min", above, emit.constant(_EVEN, "highest", kind), part="bounded")
    exact = _repeated_squares(emit, emit("Cast", bounded, part="count", to=TensorProto.INT64), part="exact")
    is_count = emit("Equal", emit("Floor", exponent, part="exponent_floor"), exponent, part="is_count")
    emit("Where", is_count, exact, truncated, part="chosen", output=output)


def _settled(emit: Emitter, power: str, kind: np.dtype[Any]) -> str:
    """A power, or the whole number of which rounding may have made it: one less would be left of 2.9999998."""
    nearest, size = emit("Round", power, part="nearest"), emit("Abs", power, part="result_size")
    error = emit("Mul", size, emit.constant(_ROUNDING, "rounding", kind), part="error")
    distance = emit("Abs", emit("Sub", power, nearest, part="difference"), part="distance")
    return emit("Where", emit("Greater", distance, error, part="is_broken"), power, nearest, part="settled")


def _repeated_squares(emit: Emitter, exponent: str, *, part: str = "", output: str = "") -> str:
    """The product of those squares of squares whose bit the exponent has.

    As for 1 divided by it, a negative exponent leaves 1 and -1 alone, and makes 0 of all else.
    """
    base = emit.node.input[0]
    one, bits = emit.like(1, base, "one"), _reduced(emit, exponent)
    value, square = one, base
    for bit in range(_BITS):
        shifted = emit("Div", bits, emit.constant(np.asarray(1 << bit, np.int64), "bit"), part="shift") if bit else bits
        is_set = emit("Equal", _parity(emit, shifted), emit.constant(np.asarray(1, np.int64), "set"), part="is_set")
        value = emit("Where", is_set, emit("Mul", value, square, part="product"), value, part="power")
        square = emit("Mul", square, square, part="square")
    is_unit = emit("Equal", emit("Abs", base, part="base_size"), one, part="is_unit")
    inverse = emit("Where", is_unit, value, emit.like(0, base, "zero"), part="inverse")
    is_negative = emit("Less", exponent, emit.constant(np.asarray(0, np.int64), "nothing"), part="negative")
    return emit("Where", is_negative, inverse, value, part=part, output=output)


def _reduced(emit: Emitter, exponent: str) -> str:
    """The exponent's size, in which one of more bits is replaced by the largest of its parity."""
    size, last = emit("Abs", exponent, part="exponent_size"), (1 << _BITS) - 2
    largest = emit("Add", _parity(emit, size), emit.constant(np.asarray(last, np.int64), "last"), part="largest")
    is_small = emit("Less", size, emit.constant(np.asarray(last, np.int64), "limit"), part="small")
    return emit("Where", is_small, size, largest, part="bits")


def _parity(emit: Emitter, value: str) -> str:
    return emit("Mod", value, emit.constant(np.asarray(2, np.int64), "two"), part="parity")
