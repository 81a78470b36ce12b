"""Lowers operators so that they never divide by zero or infinity, or end the process that does."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite

_NARROW = (TensorProto.INT8, TensorProto.INT16, TensorProto.UINT8, TensorProto.UINT16)


@node_rewrite("LpNormalization")
def guarded_norm(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Lower ``LpNormalization`` to ``x / |x|``, or 0 where the size is 0, as in ONNX Runtime; IREE 3.13 divides 0 by 0.

    The size of a small vector may be 0 although the vector is not: its square is too small a number.
    """
    emit, settings, source = Emitter(editor, node), attributes(node), node.input[0]
    kind = editor.element_type(source)
    # Squares of what f16 holds exceed it.
    is_half = kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if is_half:
        source = emit("Cast", source, part="widen", to=TensorProto.FLOAT)
    axes = emit.constant([settings.get("axis", -1)], "axes")
    size = emit("Abs", source, part="size") if settings.get("p", 2) == 1 else emit("Mul", source, source, part="square")
    norm = emit("ReduceSum", size, axes, part="sum", keepdims=1)
    if settings.get("p", 2) == 2:
        norm = emit("Sqrt", norm, part="norm")
    dtype = np.dtype(np.float32) if is_half else emit.dtype(node.input[0])
    zero, one = (emit.constant(value, hint, dtype) for value, hint in ((0.0, "zero"), (1.0, "one")))
    is_nothing = emit("Equal", norm, zero, part="is_nothing")
    dividend = emit("Where", is_nothing, zero, source, part="dividend")
    divisor = emit("Where", is_nothing, one, norm, part="divisor")
    result = emit("Div", dividend, divisor, output="" if is_half else node.output[0])
    if is_half:
        emit("Cast", result, part="narrow", output=node.output[0], to=kind)
    return emit.nodes


@node_rewrite("DynamicQuantizeLinear")
def scales_of_zeros(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Make 1 of the scale that ``DynamicQuantizeLinear`` finds for zeros alone; IREE 3.13 gives 0, ONNX Runtime 1.

    Where the scale only multiplies what is 0 then, both give 0, and the node stays as passes on quantised products know
    it.
    """
    if _vanishes(node.output[1], editor):
        return None
    emit, source = Emitter(editor, node), node.input[0]
    values, scale, zero = node.output
    measured_scale = emit.many("DynamicQuantizeLinear", source, outputs=(values, "", zero))[1]
    is_nothing = emit("Equal", measured_scale, emit.like(0.0, source, "nothing"), part="is_nothing")
    emit("Where", is_nothing, emit.like(1.0, source, "one"), measured_scale, part="scale", output=scale)
    return emit.nodes


@node_rewrite("Div", "Mod")
def guarded_quotients(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Divide integers by 1 in place of 0 and -1, and negate those that -1 divides.

    Processors stop at a division by 0, and at that of the lowest number by -1, which leaves the number here. ONNX does
    not say what either gives. A divisor that is known to be 0 stays: ONNX Runtime refuses it, which tells the user.
    """
    emit, (value, by) = Emitter(editor, node), node.input
    divisor = editor.constant(by)
    if not np.issubdtype(emit.dtype(by), np.integer) or (divisor is not None and _is_divisible_by(divisor)):
        return None
    kind = editor.element_type(by)
    if kind in _NARROW:
        # In 32 bits no quotient is too large, and ONNX Runtime selects among numbers of few types.
        wide, divisors = (emit("Cast", operand, part="wide", to=TensorProto.INT32) for operand in (value, by))
        result = emit.copy([wide, _nonzero(emit, divisors, np.int32)])
        emit("Cast", result, part="narrow", output=node.output[0], to=kind)
        return emit.nodes
    if kind not in (TensorProto.INT32, TensorProto.INT64):
        wide = emit("Cast", by, part="wide", to=TensorProto.INT64)
        emit.copy([value, emit("Cast", _nonzero(emit, wide, np.int64), part="narrow", to=kind)], node.output[0])
        return emit.nodes
    is_minus = emit("Equal", by, emit.like(-1, by, "minus_one"), part="is_minus_one")
    safe = _nonzero(emit, by, emit.dtype(by), is_minus)
    if node.op_type == "Mod":
        emit.copy([value, safe], node.output[0])
        return emit.nodes
    quotient = emit.copy([value, safe])
    emit("Where", is_minus, emit("Neg", value, part="opposite"), quotient, part="signed", output=node.output[0])
    return emit.nodes


def _nonzero(emit: Emitter, by: str, dtype: Any, also: str = "") -> str:
    """A divisor with 1 in place of 0, and where ``also`` is true."""
    zero, one = (emit.constant(np.asarray(bound, dtype), hint) for bound, hint in ((0, "zero"), (1, "one")))
    is_special = emit("Equal", by, zero, part="is_zero")
    if also:
        is_special = emit("Or", is_special, also, part="is_special")
    return emit("Where", is_special, one, by, part="divisor")


def _is_divisible_by(known: Array) -> bool:
    """Whether numbers are divided by a known divisor as they are."""
    return bool((known == 0).any()) or not (known == -1).any()


def _vanishes(scale: str, editor: GraphEditor) -> bool:
    """Whether a scale, times constants, only multiplies numbers that are 0 where it is."""
    if editor.is_output(scale):
        return False
    for reader in editor.consumers(scale):
        if reader.op_type == "DequantizeLinear" and scale not in reader.input[:1]:
            continue
        if reader.op_type != "Mul":
            return False
        other = reader.input[1] if reader.input[0] == scale else reader.input[0]
        if not (_is_sum(other, editor) or (editor.is_constant(other) and _vanishes(reader.output[0], editor))):
            return False
    return True


def _is_sum(name: str, editor: GraphEditor) -> bool:
    """Whether a value are sums of products of integers."""
    node = editor.producer(name)
    while node is not None and node.op_type in ("Cast", "Reshape", "Transpose"):
        node = editor.producer(node.input[0])
    return node is not None and node.op_type in ("ConvInteger", "MatMulInteger")
