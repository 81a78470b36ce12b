"""Rewrites integer convolutions, and (de)quantisation of 16 bits or in blocks, to operators that IREE imports."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.rewrites.number_types.small_floats import SMALL_FLOATS
from sartor.onnx_model.rewrites.windowed.windows import window_of

# Types that IREE 3.13 cannot quantise to.
_LACKING = frozenset(
    {
        *(TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2),
        *SMALL_FLOATS,
    }
)


@node_rewrite("ConvInteger")
def split_zero_points(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Subtract zero points of a ``ConvInteger``'s channels after it; IREE 3.13 lowers only one for all weights.

    ``sum (x - a) (w - z) = sum (x - a) w - z sum (x - a)``, whose last sum is that of a window, over the channels of a
    group.
    """
    point = optional_input(node, 3)
    shape, weight = (editor.shape(name) for name in (point, node.input[1])) if point else (None, None)
    if not shape or weight is None:
        return None
    emit = Emitter(editor, node)
    value = emit.copy(list(node.input[:3]))
    groups = attributes(node).get("group", 1)
    ones = emit.constant(np.ones((groups, *weight[1:]), emit.dtype(node.input[1])), "ones")
    options = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    total = emit("ConvInteger", node.input[0], ones, *node.input[2:3], part="window_sum", **options)
    if 1 < groups < weight[0]:
        of_channels = np.repeat(np.arange(groups), weight[0] // groups)
        total = emit("Gather", total, emit.constant(of_channels, "groups"), part="group_sum", axis=1)
    column = emit("Reshape", point, emit.constant([-1, *[1] * (len(weight) - 2)], "column"), part="zero_points")
    column = emit("Cast", column, part="wide", to=TensorProto.INT32)
    excess = emit("Mul", column, total, part="excess")
    emit("Sub", value, excess, part="subtract", output=node.output[0])
    return emit.nodes


@node_rewrite("ConvInteger")
def pad_integer_conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Pad the operand of ``ConvInteger`` with its zero point by a Pad: IREE 3.13 imports it only without padding."""
    window, element = window_of(node, editor), editor.element_type(node.input[0])
    if window is None or not element or not any(any(sides) for sides in window.pads):
        return None
    emit = Emitter(editor, node)
    pads = [0, 0, *(low for low, _ in window.pads), 0, 0, *(high for _, high in window.pads)]
    operands = [node.input[0], emit.constant(pads, "pads")]
    if zero := optional_input(node, 2):
        known = editor.constant(zero)
        operands.append(zero if known is None else emit.constant(known.reshape(()), "zero_point"))
    value = emit("Pad", *operands, part="pad")
    bare = NodeProto()
    bare.CopyFrom(node)
    bare.input[0] = value
    del bare.attribute[:]
    bare.attribute.extend(item for item in node.attribute if item.name not in ("pads", "auto_pad"))
    return [*emit.nodes, bare]


def cast_quantised(model: ModelProto) -> tuple[str, ...]:
    """Write the casts within (de)quantisation as nodes: what it reads or gives has the type of its scale then.

    A ``QuantizeLinear`` of f16 or of int32 divides in f32 if its scale is f32. A ``DequantizeLinear`` multiplies in the
    wider type, as in ONNX Runtime: the result of a scale in f16 may be f32.
    """
    changed = rewrite_nodes(model, _cast_operand)
    changed += rewrite_nodes(model, _cast_result)
    if changed:
        # Other rewrites read the types and shapes of the scales.
        infer_shapes(model)
    return changed


def _cast_operand(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "QuantizeLinear" or editor.element_type(node.input[1]) != TensorProto.FLOAT:
        return None
    if editor.element_type(node.input[0]) in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.UNDEFINED):
        return None
    emit = Emitter(editor, node)
    value = emit("Cast", node.input[0], part="float", to=TensorProto.FLOAT)
    emit.copy([value, *node.input[1:]], node.output[0])
    return emit.nodes


def _cast_result(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    target = attributes(node).get("output_dtype", 0) if node.op_type == "DequantizeLinear" else 0
    kind = editor.element_type(node.input[1]) if target else 0
    if not kind:
        return None
    emit, inputs = Emitter(editor, node), list(node.input)
    if kind not in (target, TensorProto.FLOAT):
        inputs[1] = emit("Cast", inputs[1], part="scale_float", to=TensorProto.FLOAT)
    is_given = target in (kind, TensorProto.FLOAT)
    kept = {key: value for key, value in attributes(node).items() if key != "output_dtype"}
    result = emit("DequantizeLinear", *inputs, output=node.output[0] if is_given else "", **kept)
    if not is_given:
        emit("Cast", result, part="narrow", output=node.output[0], to=target)
    return emit.nodes


@node_rewrite("DequantizeLinear", "QuantizeLinear")
def plain_quantization(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write (de)quantisation that is blocked, or of types in ``_LACKING``, as arithmetic.

    So is dequantisation of 16 bits and more to other floats than f32, and quantisation of those to 16 bits. That is
    ``(q - z) s`` and ``saturate(round(x / s) + z)``; casting to small floats rounds and saturates by itself.
    """
    quantised = node.output[0] if node.op_type == "QuantizeLinear" else node.input[0]
    block = attributes(node).get("block_size", 0)
    element = editor.element_type(quantised)
    shape, scales = editor.shape(node.input[0]), editor.shape(node.input[1])
    scale_kind = editor.element_type(node.input[1]) or TensorProto.FLOAT
    # Zero points of 16 bits, and sums with them, are no numbers of f16.
    is_narrow = node.op_type == "QuantizeLinear" and element == TensorProto.INT16
    is_wider = node.op_type == "DequantizeLinear" and _float(editor, node) != scale_kind
    overflows = is_wider or (is_narrow and scale_kind != TensorProto.FLOAT)
    if shape is None or scales is None or not (block or element in _LACKING or overflows):
        return None
    emit = Emitter(editor, node)
    axis = attributes(node).get("axis", 1) % max(len(shape), 1)
    scale = _aligned(emit, node.input[1], shape, axis, block, "scale")
    zero = ""
    if point := optional_input(node, 2):
        kind = _float(editor, node) if node.op_type == "DequantizeLinear" else TensorProto.FLOAT
        zero = _aligned(emit, emit("Cast", point, part="zero", to=kind), shape, axis, block, "zero")
    if node.op_type == "DequantizeLinear":
        _dequantize(emit, scale, zero)
    else:
        _quantize(emit, scale, zero, element)
    return emit.nodes


def _float(editor: GraphEditor, node: NodeProto) -> int:
    """The float in which a DequantizeLinear is computed: f16 is infinite at the bounds of 16 bits, bf16 rounds them."""
    if editor.element_type(node.input[0]) in (TensorProto.UINT16, TensorProto.INT16, TensorProto.INT32):
        return TensorProto.FLOAT
    return editor.element_type(node.input[1]) or TensorProto.FLOAT


def _aligned(emit: Emitter, name: str, shape: tuple[int, ...], axis: int, block: int, hint: str) -> str:
    """Reshape ``name`` so that it broadcasts with the values: one element per tensor, per channel, or per block."""
    own = emit.editor.shape(emit.node.input[1]) or ()
    if not own:
        return name
    if not block:
        column = [-1 if index == axis else 1 for index in range(len(shape))]
        return emit("Reshape", name, emit.constant(column, f"{hint}_shape"), part=f"{hint}_align")
    split = [*own[: axis + 1], 1, *own[axis + 1 :]]
    repeated = [*own[: axis + 1], block, *own[axis + 1 :]]
    value = emit("Reshape", name, emit.constant(split, f"{hint}_split"), part=f"{hint}_split")
    value = emit("Expand", value, emit.constant(repeated, f"{hint}_repeated"), part=f"{hint}_repeat")
    joined = [size * block if index == axis else size for index, size in enumerate(own)]
    value = emit("Reshape", value, emit.constant(joined, f"{hint}_shape"), part=f"{hint}_align")
    if joined[axis] == shape[axis]:
        return value
    # The last block is smaller.
    bounds = [emit.constant([bound], f"{hint}_cut") for bound in (0, shape[axis], axis)]
    return emit("Slice", value, *bounds, part=f"{hint}_cut")


def _dequantize(emit: Emitter, scale: str, zero: str) -> None:
    kind, output = _float(emit.editor, emit.node), emit.node.output[0]
    result = emit.editor.element_type(emit.node.input[1]) or kind
    value = emit("Cast", emit.node.input[0], part="cast", to=kind)
    if zero:
        value = emit("Sub", value, zero, part="shift")
    if result == kind:
        emit("Mul", value, scale, output=output)
        return
    product = emit("Mul", value, emit("Cast", scale, part="scale_float", to=kind))
    emit("Cast", product, part="narrow", output=output, to=result)


def _quantize(emit: Emitter, scale: str, zero: str, element: int) -> None:
    """In f32, as ONNX Runtime: f16 is infinite at the bounds of 16 bits, and bfloat16 rounds them."""
    source, size = emit.node.input[:2]
    kind = emit.editor.element_type
    if kind(source) not in (TensorProto.FLOAT, TensorProto.UNDEFINED):
        source = emit("Cast", source, part="float", to=TensorProto.FLOAT)
    if kind(size) not in (TensorProto.FLOAT, TensorProto.UNDEFINED):
        scale = emit("Cast", scale, part="scale_float", to=TensorProto.FLOAT)
    value = emit("Div", source, scale)
    if element not in SMALL_FLOATS:
        value = emit("Round", value, part="round")
    if zero:
        value = emit("Add", value, zero, part="shift")
    if element in SMALL_FLOATS:
        saturate = attributes(emit.node).get("saturate", 1)
        emit("Cast", value, part="cast", output=emit.node.output[0], to=element, saturate=saturate)
        return
    limits: Any = ml_dtypes.iinfo(helper.tensor_dtype_to_np_dtype(element))  # type: ignore[no-untyped-call]
    bounds = [emit.constant(float(bound), "bound", np.float32) for bound in (limits.min, limits.max)]
    value = emit("Clip", value, *bounds, part="saturate")
    if element == TensorProto.UINT16 and _only_dequantized(emit):
        element = TensorProto.INT32
        emit.editor.forget(emit.node.output[0])
    emit("Cast", value, part="cast", output=emit.node.output[0], to=element)


def _only_dequantized(emit: Emitter) -> bool:
    """Whether only DequantizeLinear reads the result. Then it may have 32 bits; IREE cannot cast to 16 bits."""
    name = emit.node.output[0]
    readers = emit.editor.consumers(name)
    return not emit.editor.is_output(name) and all(reader.op_type == "DequantizeLinear" for reader in readers)
