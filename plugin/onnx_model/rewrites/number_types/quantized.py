"""Rewrites quantised operators to dequantise, float operator, quantise.

All quantised models then have one form, which the integer routines recognise and IREE imports.

Accuracy: let s be the result's step. ONNX Runtime rounds ``acc * m`` (acc an exact integer, m the combined scale in
float32). This form rounds ``y / s``, with y summed in float32. Both are within half a step of values that differ by
at most ``(n + 3) u |x|.|w| / s`` steps (n terms, u = 2**-24; Higham, Accuracy and Stability, section 3.1), which is far
below one step, so for equal inputs the results differ by at most one step, and only next to a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node

Lowering = Callable[[NodeProto, GraphEditor], list[NodeProto] | None]


def _scalar(emit: Emitter, name: str) -> str:
    """What has one element as a scalar: these operators take such a vector as per tensor, others as per axis."""
    if not name or emit.editor.shape(name) == () or _shape(emit, name) != ():
        return name
    known = emit.editor.constant(name)
    if known is None:
        return emit("Reshape", name, emit.constant([], "scalar_shape"), part="scalar")
    return emit.constant(known.reshape(()), "scalar")


def _shape(emit: Emitter, name: str) -> tuple[int, ...] | None:
    """The shape of a scale or zero point, that of a scalar for one element or none at all; None if it is unknown."""
    shape = emit.editor.shape(name) if name else ()
    return () if shape is not None and math.prod(shape) == 1 else shape


def dequantize(emit: Emitter, operand: tuple[str, str, str], part: str, axis: int | None = None) -> str:
    """Emit a DequantizeLinear of ``(values, scale, zero point)``; ``axis`` is used if one of both is a vector."""
    values, scale, zero_point = operand[0], _scalar(emit, operand[1]), _scalar(emit, operand[2])
    shapes = [_shape(emit, name) for name in operand[1:]]
    if shapes == [(), ()]:
        axis = None
    rank = max(len(shape or ()) for shape in shapes)
    if rank > 1:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has scales of rank {rank}; a scalar or one per channel was expected"
        )
    # DequantizeLinear needs as many zero points as scales.
    if shapes[0] and shapes[1] == () and zero_point:
        zero_point = _repeated(emit, zero_point, shapes[0], f"{part}/zero_point")
    elif shapes[1] and shapes[0] == ():
        scale = _repeated(emit, scale, shapes[1], f"{part}/scale")
    inputs = [values, scale, zero_point] if zero_point else [values, scale]
    return emit("DequantizeLinear", *inputs, part=f"{part}_dequantize", axis=axis)


def _repeated(emit: Emitter, name: str, shape: tuple[int, ...], part: str) -> str:
    """A scalar, once for each channel."""
    known = emit.editor.constant(name)
    if known is not None:
        return emit.constant(np.full(shape, known), part)
    return emit("Expand", name, emit.constant([*shape], f"{part}_shape"), part=part)


def _quantize(emit: Emitter, values: str, scale: str, zero_point: str, like: str, output: str | None = None) -> str:
    """Emit ``values`` quantised to the type of the zero point, or of ``like`` if there is none.

    Args:
        emit: of the node.
        values: floats.
        scale, zero_point: the node's, for its result.
        like: a value of the result's type.
        output: the name of the result, empty for a fresh one; the node's output unless it is given.
    """
    point = _scalar(emit, zero_point) if zero_point else emit.like(0, like, "zero_point")
    name = emit.node.output[0] if output is None else output
    return emit("QuantizeLinear", values, _scalar(emit, scale), point, part="quantize", output=name)


def _typed(editor: GraphEditor, *names: str) -> bool:
    return all(editor.element_type(name) for name in names)


def _attributes_without(node: NodeProto, *dropped: str) -> dict[str, Any]:
    return {key: value for key, value in attributes(node).items() if key not in dropped}


def _operand(node: NodeProto, index: int) -> tuple[str, str, str]:
    return optional_input(node, index), optional_input(node, index + 1), optional_input(node, index + 2)


def _bias(emit: Emitter, bias: str, x_scale: str, w_scale: str) -> str:
    """Emit the float value of an int32 bias, whose scale is the product of the operands' scales."""
    known = [emit.editor.constant(name) for name in (x_scale, w_scale)]
    values = emit.editor.constant(bias)
    if values is not None and known[0] is not None and known[1] is not None:
        product = known[0].reshape(-1).astype(np.float64) * known[1].reshape(-1)
        return emit.constant((values * product).astype(np.float32), "bias")
    scale = emit("Mul", x_scale, w_scale, part="bias_scale")
    return emit("Mul", emit("Cast", bias, part="bias_cast", to=TensorProto.FLOAT), scale, part="bias_dequantize")


def _conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """ONNX Runtime's own has images with channels last, if ``channels_last`` says so, and filters as the standard's."""
    rank, is_last = editor.rank(node.input[3]), attributes(node).get("channels_last")
    if is_last and rank is None:
        return None
    emit, image = Emitter(editor, node), node.input[0]
    if is_last and rank:
        image = emit("Transpose", image, part="to_nchw", perm=[0, rank - 1, *range(1, rank - 1)])
    inputs = [
        dequantize(emit, (image, node.input[1], node.input[2]), "input"),
        dequantize(emit, _operand(node, 3), "weight", axis=0),
    ]
    if bias := optional_input(node, 8):
        inputs.append(_bias(emit, bias, node.input[1], node.input[4]))
    result = emit("Conv", *inputs, **_attributes_without(node, "channels_last"))
    output = "" if is_last else node.output[0]
    result = _quantize(emit, result, node.input[6], node.input[7], node.input[0], output)
    if is_last and rank:
        emit("Transpose", result, part="to_nhwc", output=node.output[0], perm=[0, *range(2, rank), 1])
    return emit.nodes


def _matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    ranks = editor.rank(node.input[0]), editor.rank(node.input[3])
    if ranks[0] is None or ranks[1] is None:
        return None
    emit = Emitter(editor, node)
    left = dequantize(emit, _operand(node, 0), "left", axis=ranks[0] - 2)
    right = dequantize(emit, _operand(node, 3), "right", axis=ranks[1] - 1)
    _quantize(emit, emit("MatMul", left, right), node.input[6], node.input[7], node.input[0])
    return emit.nodes


def _gemm(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit, settings = Emitter(editor, node), attributes(node)
    left = dequantize(emit, _operand(node, 0), "left", axis=1 if settings.get("transA") else 0)
    right = dequantize(emit, _operand(node, 3), "right", axis=0 if settings.get("transB") else 1)
    inputs = [left, right]
    if bias := optional_input(node, 6):
        inputs.append(_bias(emit, bias, node.input[1], node.input[4]))
    alpha = settings.get("alpha", 1.0)
    scale, point = optional_input(node, 7), optional_input(node, 8)
    transposed = {key: settings.get(key, 0) for key in ("transA", "transB")}
    output = "" if scale else node.output[0]
    result = emit("Gemm", *inputs, output=output, alpha=alpha, beta=alpha, **transposed)
    if scale:
        _quantize(emit, result, scale, point, node.input[0])
    return emit.nodes


def _binary(operator: str) -> Lowering:
    def lower(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
        if not _typed(editor, node.input[0]):
            return None
        emit = Emitter(editor, node)
        left, right = (
            dequantize(emit, _operand(node, 0), "left"),
            dequantize(emit, _operand(node, 3), "right"),
        )
        _quantize(emit, emit(operator, left, right), node.input[6], optional_input(node, 7), node.input[0])
        return emit.nodes

    return lower


def _unary(operator: str) -> Lowering:
    """Lowering of an operator with one operand (values, scale, zero point) and the result's scale and zero point."""

    def lower(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
        if not _typed(editor, node.input[0]):
            return None
        emit = Emitter(editor, node)
        value = dequantize(emit, _operand(node, 0), "input")
        result = emit(operator, value, **_attributes_without(node, "channels_last"))
        _quantize(emit, result, node.input[3], optional_input(node, 4), node.input[0])
        return emit.nodes

    return lower


def _pool(operator: str) -> Lowering:
    plain = _unary(operator)

    def lower(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
        settings = attributes(node)
        if settings.get("ceil_mode") and settings.get("count_include_pad"):
            raise UnsupportedModelError(
                f"{describe_node(node)} counts padding and rounds up (count_include_pad and ceil_mode), of which ONNX "
                "Runtime makes other averages than ONNX; pad explicitly before it"
            )
        if not settings.get("channels_last"):
            return plain(node, editor)
        rank = editor.rank(node.input[0])
        if rank is None or not _typed(editor, node.input[0]):
            return None
        emit = Emitter(editor, node)
        value = dequantize(emit, _operand(node, 0), "input")
        value = emit("Transpose", value, part="to_nchw", perm=[0, rank - 1, *range(1, rank - 1)])
        value = emit(operator, value, **_attributes_without(node, "channels_last"))
        value = emit("Transpose", value, part="to_nhwc", perm=[0, *range(2, rank), 1])
        _quantize(emit, value, node.input[3], optional_input(node, 4), node.input[0])
        return emit.nodes

    return lower


def _softmax(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    rank, settings = editor.rank(node.input[0]), attributes(node)
    if rank is None or not _typed(editor, node.input[0]):
        return None
    axis = settings.get("axis", -1) % rank
    if settings.get("opset", 13) < 13 and axis != rank - 1:
        raise UnsupportedModelError(
            f"{describe_node(node)} normalises several dimensions together; export the model with opset 13 or newer"
        )
    emit = Emitter(editor, node)
    result = emit("Softmax", dequantize(emit, _operand(node, 0), "input"), axis=axis)
    _quantize(emit, result, node.input[3], optional_input(node, 4), node.input[0])
    return emit.nodes


def _reduce_mean(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if not _typed(editor, node.input[0]):
        return None
    emit, settings = Emitter(editor, node), attributes(node)
    value = dequantize(emit, _operand(node, 0), "input")
    axes = list(settings.get("axes", []))
    total = [value, emit.constant(axes, "axes")] if axes else [value]
    keep = settings.get("keepdims", 1)
    # ReduceSum takes its axes as an input in every opset from 13 on; ReduceMean only from 18.
    sums = emit("ReduceSum", *total, keepdims=keep)
    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    count = int(np.prod([shape[axis] for axis in axes] if axes else shape))
    mean = emit("Div", sums, emit.constant(float(count), "count", np.float32), part="divide")
    _quantize(emit, mean, node.input[3], optional_input(node, 4), node.input[0])
    return emit.nodes


def _concat(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    starts = range(2, len(node.input), 3)
    parts = [dequantize(emit, _operand(node, start), f"input{(start - 2) // 3}") for start in starts]
    result = emit("Concat", *parts, axis=attributes(node)["axis"])
    _quantize(emit, result, node.input[0], node.input[1], node.input[2])
    return emit.nodes


def _where(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    left, right = dequantize(emit, _operand(node, 1), "left"), dequantize(emit, _operand(node, 4), "right")
    _quantize(emit, emit("Where", node.input[0], left, right), node.input[7], node.input[8], node.input[1])
    return emit.nodes


def _dynamic_matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``DynamicQuantizeMatMul(A, B, b_scale, b_zero, bias)``: A is quantised to uint8 by its own range."""
    rank = editor.rank(node.input[1])
    if rank is None:
        return None
    emit = Emitter(editor, node)
    parts = emit.many("DynamicQuantizeLinear", node.input[0], part="quantize", outputs=("", "", ""))
    left = dequantize(emit, (parts[0], parts[1], parts[2]), "left")
    right = dequantize(emit, (node.input[1], node.input[2], optional_input(node, 3)), "right", axis=rank - 1)
    _add_bias(emit, left, right, optional_input(node, 4))
    return emit.nodes


def _integer_matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``MatMulIntegerToFloat(A, B, a_scale, b_scale, a_zero, b_zero, bias)``."""
    rank = editor.rank(node.input[1])
    if rank is None:
        return None
    emit = Emitter(editor, node)
    left = dequantize(emit, (node.input[0], node.input[2], optional_input(node, 4)), "left")
    right = dequantize(emit, (node.input[1], node.input[3], optional_input(node, 5)), "right", axis=rank - 1)
    _add_bias(emit, left, right, optional_input(node, 6))
    return emit.nodes


def _add_bias(emit: Emitter, left: str, right: str, bias: str) -> None:
    output = emit.node.output[0]
    product = emit("MatMul", left, right, output="" if bias else output)
    if bias:
        emit("Add", product, bias, part="bias", output=output)


def _standard_form(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    inputs = [node.input[0], *(_scalar(emit, name) for name in node.input[1:])]
    emit(node.op_type, *inputs, output=node.output[0], axis=attributes(node).get("axis"))
    return emit.nodes


STANDARD: Mapping[str, Lowering] = {"QLinearConv": _conv, "QLinearMatMul": _matmul}

CONTRIB: Mapping[str, Lowering] = {
    "DequantizeLinear": _standard_form,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _integer_matmul,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _pool("AveragePool"),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearMul": _binary("Mul"),
    "QLinearReduceMean": _reduce_mean,
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QuantizeLinear": _standard_form,
}
