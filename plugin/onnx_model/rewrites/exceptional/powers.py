"""Writes out powers of floating-point numbers that IREE computes to wrong results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, node_rewrite
from sartor.onnx_model.rewrites.exceptional.integer_powers import (
    emit_integer_power,
    emit_mixed_power,
    is_integer_power,
)

_BASES = frozenset({"bfloat16", "float16", "float32", "float64", "int32", "int64"})
_LARGEST_PRODUCT = 64
"""Whole exponents up to this one are products in IREE."""
_FEW = 4
"""Products of so many short floats are rounded twice at most, and stay in the layer that computes their base."""
_NEVER_NEGATIVE = frozenset({"Abs", "Exp", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Sigmoid", "Softmax", "Softplus"})
_KEEP_SIGNS = frozenset({"Add", "Div", "Identity", "Max", "Mul", "Pow", "ReduceMax", "ReduceMean", "ReduceSum", "Sqrt"})
_CHAIN = 8
"""Nodes in a row that are asked for the sign of their results."""


@node_rewrite("Pow")
def signed_powers(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write out ``Pow`` where its base may be negative, zero or infinite.

    IREE 3.13 computes ``exp(y log(x))``, which is NaN for each negative base and for every base to the power of 0, and
    gives zeros to a constant, negative power the wrong sign. Constant powers that are whole and not negative are
    products there, and stay, of short floats those of few factors.
    """
    if not editor.element_type(node.input[0]):
        return None
    emit, (base, exponent) = Emitter(editor, node), node.input
    if emit.dtype(base).name not in _BASES:
        return None
    if is_integer_power(emit):
        emit_integer_power(emit)
        return emit.nodes
    kind, known = _computed_in(emit), editor.constant(exponent)
    power, exponents = None if known is not None and _widens(known, editor.shape(base)) else _scalar(known), ""
    if power is not None and math.isfinite(power):
        value = _constant_power(emit, power, kind)
    elif _is_above_zero(editor.constant(base)) and emit.dtype(base).kind != "i":
        return None
    else:
        aligned = _aligned(emit, _cast(emit, base, "base", kind))
        exponents = _cast(emit, exponent, "exponent", kind)
        value = _power(emit, aligned, exponents, kind)
    if value and emit.dtype(base).kind == "i":
        emit_mixed_power(emit, value, exponents, kind)
    elif value:
        emit("Cast", value, part="cast", output=node.output[0], to=editor.element_type(base))
    return emit.nodes or None


def _aligned(emit: Emitter, value: str) -> str:
    """The base's value with at least as many dimensions as the exponent."""
    shape, other = (emit.editor.shape(name) for name in emit.node.input)
    if shape is None or other is None or len(shape) >= len(other):
        return value
    return emit("Reshape", value, emit.constant([1] * (len(other) - len(shape)) + list(shape), "rank"), part="aligned")


def _scalar(values: Array | None) -> float | None:
    """The one value of a constant that has a single one, however often."""
    if values is None or not values.size or (values != values.flat[0]).any():
        return None
    return float(values.flat[0])


def _widens(values: Array, shape: tuple[int, ...] | None) -> bool:
    """Whether an exponent adds to the shape of the base."""
    return values.size > 1 if shape is None else np.broadcast_shapes(values.shape, shape) != shape


def _computed_in(emit: Emitter) -> np.dtype[Any]:
    """The type in which a power is computed; short floats in float32, as numbers beside 1 have large powers."""
    base, exponent = (emit.dtype(name) for name in emit.node.input)
    return np.dtype(np.float64 if "float64" in (base.name, exponent.name if base.kind == "i" else "") else np.float32)


def _cast(emit: Emitter, name: str, part: str, kind: np.dtype[Any]) -> str:
    if emit.dtype(name) == kind:
        return name
    return emit("Cast", name, part=part, to=helper.np_dtype_to_tensor_dtype(kind))


def _is_above_zero(values: Array | None) -> bool:
    """Whether a base is a constant of which IREE computes all powers right."""
    return values is not None and bool(((values > 0) & (values != 1) & (values < math.inf)).all())


def _constant_power(emit: Emitter, power: float, kind: np.dtype[Any]) -> str:
    """The power with one finite exponent; an empty name if the node may stay."""
    source, is_whole = emit.node.input[0], power.is_integer()
    is_float = emit.dtype(source).kind != "i"
    is_product = is_whole and 0 <= power <= _LARGEST_PRODUCT
    is_exact = is_product and (emit.dtype(source) == kind or power <= _FEW)
    if is_float and (is_exact or (not is_whole and _is_positive(emit.editor, source, _CHAIN))):
        return ""
    base = _cast(emit, source, "base", kind)
    if not is_whole:
        return _broken_power(emit, base, power, kind)
    if is_product:
        return emit("Pow", base, emit.constant(power, "power", kind))
    if power == -1:
        return emit("Reciprocal", base)
    if -_LARGEST_PRODUCT <= power < 0:
        return emit("Reciprocal", emit("Pow", base, emit.constant(-power, "power", kind)), part="reciprocal")
    return _power(emit, base, emit.constant(power, "power", kind), kind)


def _broken_power(emit: Emitter, base: str, power: float, kind: np.dtype[Any]) -> str:
    """A constant power that is not whole: finite negative bases have none, -inf has that of inf, and -0 that of 0."""
    below = emit("Less", base, emit.constant(0.0, "zero", kind), part="below")
    finite = emit("Greater", base, emit.constant(-math.inf, "least", kind), part="finite")
    size = emit("Pow", emit("Abs", base, part="size"), emit.constant(power, "power", kind))
    invalid = emit("And", below, finite, part="invalid")
    return emit("Where", invalid, emit.constant(math.nan, "no_number", kind), size, part="result")


def _is_positive(editor: GraphEditor, name: str, chain: int) -> bool:
    """Whether a value is known to be neither negative nor -0."""
    known, node = editor.constant(name), editor.producer(name)
    if known is not None:
        return not np.signbit(known).any()
    if node is None or node.domain or not chain:
        return False
    if node.op_type in _NEVER_NEGATIVE or (node.op_type == "Mul" and len({*node.input}) == 1):
        return True
    if node.op_type == "Pow" and (power := _scalar(editor.constant(node.input[1]))) is not None and power % 2 == 0:
        return True
    operands = node.input[:1] if node.op_type == "Pow" or node.op_type.startswith("Reduce") else node.input
    return node.op_type in _KEEP_SIGNS and all(_is_positive(editor, operand, chain - 1) for operand in operands)


def _power(emit: Emitter, base: str, exponent: str, kind: np.dtype[Any]) -> str:
    """Any power, as C's ``pow`` defines it, from the power of the base's size."""
    one, minus_one, zero = (
        emit.constant(value, hint, kind) for value, hint in ((1.0, "one"), (-1.0, "minus_one"), (0.0, "zero"))
    )
    size = emit("Pow", emit("Abs", base, part="size"), exponent)
    half = emit("Mul", exponent, emit.constant(0.5, "half", kind), part="half")
    is_even = emit("Equal", emit("Floor", half, part="whole_half"), half, part="even")
    is_whole = emit("Equal", emit("Floor", exponent, part="whole_part"), exponent, part="whole")
    signed = _signed(emit, base, size, emit("And", is_whole, emit("Not", is_even, part="uneven"), part="odd"), zero)
    is_finite = emit("Greater", base, emit.constant(-math.inf, "least", kind), part="finite")
    is_below = emit("And", emit("Less", base, zero, part="below"), is_finite, part="below_finite")
    is_invalid = emit("And", is_below, emit("Not", is_whole, part="broken"), part="invalid")
    value = emit("Where", is_invalid, emit.constant(math.nan, "no_number", kind), signed, part="number")
    is_one = emit("And", emit("Equal", base, minus_one, part="is_minus_one"), is_even, part="even_one")
    is_one = emit("Or", is_one, emit("Equal", base, one, part="is_one"), part="ones")
    is_one = emit("Or", is_one, emit("Equal", exponent, zero, part="is_nothing"), part="result_one")
    return emit("Where", is_one, one, value, part="result")


def _signed(emit: Emitter, base: str, size: str, is_odd: str, zero: str) -> str:
    """The size with the sign of a base to an odd power; 1 divided by -0 is below 0, where -0 itself is not."""
    inverse = emit("Less", emit("Reciprocal", base, part="inverse"), zero, part="inverse_below")
    is_negative = emit("Or", emit("Less", base, zero, part="base_below"), inverse, part="negative")
    is_turned = emit("And", is_odd, is_negative, part="turned")
    return emit("Where", is_turned, emit("Neg", size, part="opposite"), size, part="signed")
