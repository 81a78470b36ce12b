"""One function per operator whose definition changed between opset 1 and 17; it keeps nodes that are up to date.

``upgrade(node, editor, version)`` returns the nodes that replace ``node``, or None to keep it. ``version`` is the
model's opset. Most changes show in the node itself (an attribute that became an input); ``version`` decides about the
others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.alike import GATES
from sartor.onnx_model.rewrites.operator_sets.batched_scan import scan_by_sequence

Upgrade = Callable[[NodeProto, GraphEditor, int], list[NodeProto] | None]


def _reissue(
    node: NodeProto, editor: GraphEditor, inputs: list[str], changes: Mapping[str, Any], operator: str = ""
) -> list[NodeProto]:
    """The same node with other inputs and changed attributes; None removes an attribute."""
    emit = Emitter(editor, node)
    emit.many(operator or node.op_type, *inputs, outputs=tuple(node.output), **changes)
    emit.nodes[0].attribute.extend(item for item in node.attribute if item.name not in changes)
    return emit.nodes


def _constant(editor: GraphEditor, node: NodeProto, hint: str, values: list[int] | Array) -> str:
    return Emitter(editor, node).constant(values, hint)


def _rank(editor: GraphEditor, node: NodeProto, name: str) -> int:
    rank = editor.rank(name)
    if rank is None:
        raise UnsupportedModelError(
            f"{describe_node(node)} is of an old opset and can only be upgraded to opset 17 if the rank of its input "
            f"{name!r} is known; export the model with opset 17"
        )
    return rank


def _attribute_to_input(attribute: str, index: int) -> Upgrade:
    """The upgrade of a list of integers that became an input (axes of Squeeze, sizes of Split …)."""

    def upgrade(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
        values = attributes(node).get(attribute)
        if values is None:
            return None
        inputs = [optional_input(node, position) for position in range(index)]
        inputs.append(_constant(editor, node, attribute, list(values)))
        return _reissue(node, editor, inputs, {attribute: None})

    return upgrade


def _broadcast(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """Before opset 7 the second operand was aligned at ``axis``, since then at the last dimension."""
    if version >= 7:
        return None
    settings = attributes(node)
    emit = Emitter(editor, node)
    second = node.input[1]
    if settings.get("broadcast") and "axis" in settings:
        rank, axis = _rank(editor, node, node.input[0]), settings["axis"]
        trailing = rank - (axis % rank) - _rank(editor, node, second)
        if trailing > 0:
            axes = emit.constant(list(range(-trailing, 0)), "axes")
            second = emit("Unsqueeze", second, axes, part="align")
    emit(node.op_type, node.input[0], second, output=node.output[0])
    return emit.nodes


def _drop(*names: str) -> Upgrade:
    """The upgrade that removes attributes: those for training only, and those of opset 1 only."""

    def upgrade(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
        if not any(item.name in names for item in node.attribute):
            return None
        return _reissue(node, editor, list(node.input), dict.fromkeys(names))

    return upgrade


def _batch_normalization(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    settings = attributes(node)
    if version < 9 and not settings.get("spatial", 1):
        return _normalise_positions(node, editor, settings.get("epsilon", 1e-5))
    if not {"spatial", "is_test", "consumed_inputs"} & settings.keys() and (len(node.output) == 1 or version >= 14):
        return None
    emit = Emitter(editor, node)
    kept = {key: settings[key] for key in ("epsilon", "momentum") if key in settings}
    emit(node.op_type, *node.input, output=node.output[0], **kept)
    return emit.nodes


def _normalise_positions(node: NodeProto, editor: GraphEditor, epsilon: float) -> list[NodeProto]:
    """Normalise every position by itself (``spatial=0``), by parameters that are as large as an image."""
    emit = Emitter(editor, node)
    source, scale, bias, mean, variance = node.input
    widened = emit("Add", variance, emit.like(epsilon, source, "epsilon"), part="epsilon")
    factor = emit("Div", scale, emit("Sqrt", widened, part="deviation"), part="factor")
    product = emit("Mul", emit("Sub", source, mean, part="centre"), factor)
    emit("Add", product, bias, part="shift", output=node.output[0])
    return emit.nodes


def _cast(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    target = attributes(node)["to"]
    if not isinstance(target, str):
        return None
    return _reissue(node, editor, list(node.input), {"to": TensorProto.DataType.Value(target)})


def _clip(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if version >= 11:
        return None
    # A bound that is left out is the largest number of float32, beyond which infinity alone is.
    is_bounded = version >= 6 and editor.element_type(node.input[0]) == TensorProto.FLOAT
    settings = ({"min": -_LARGEST, "max": _LARGEST} if is_bounded else {}) | attributes(node)
    emit = Emitter(editor, node)
    bounds = [emit.like(settings[key], node.input[0], key) if key in settings else "" for key in ("min", "max")]
    while bounds and not bounds[-1]:
        bounds.pop()
    emit("Clip", node.input[0], *bounds, output=node.output[0])
    return emit.nodes


def _concat(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    return None if "axis" in attributes(node) else _reissue(node, editor, list(node.input), {"axis": 1})


def _dropout(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """Before opset 12 the standard left open what the mask is at inference: ONNX Runtime has zeros, since then ones.

    Before opset 10 the mask had the type of the values.
    """
    if version >= 12:
        return None
    mask = node.output[1] if len(node.output) > 1 else ""
    if not mask:
        return _reissue(node, editor, list(node.input[:1]), dict.fromkeys(("ratio", "is_test", "consumed_inputs")))
    emit = Emitter(editor, node)
    emit("Identity", node.input[0], output=node.output[0])
    zero = numpy_helper.from_array(np.zeros(1, emit.dtype(node.input[0]) if version < 10 else np.bool_), "zero")
    emit("ConstantOfShape", emit("Shape", node.input[0], part="shape"), part="mask", output=mask, value=zero)
    return emit.nodes


def _pad(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    settings = attributes(node)
    pads = settings.get("pads", settings.get("paddings"))
    if pads is None:
        return None
    emit = Emitter(editor, node)
    inputs = [node.input[0], emit.constant(list(pads), "pads")]
    if settings.get("value"):
        inputs.append(emit.like(settings["value"], node.input[0], "value"))
    return _reissue(node, editor, inputs, dict.fromkeys(("pads", "paddings", "value")))


def _p_relu(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """Before opset 7 a vector of slopes was one per channel, since then it is aligned at the last dimension."""
    size, rank = math.prod(editor.shape(node.input[1]) or ()), editor.rank(node.input[0])
    if version >= 7 or editor.rank(node.input[1]) != 1 or size == 1 or rank == 2:
        return _drop("consumed_inputs")(node, editor, version)
    emit = Emitter(editor, node)
    axes = emit.constant(list(range(1, _rank(editor, node, node.input[0]) - 1)), "axes")
    emit("PRelu", node.input[0], emit("Unsqueeze", node.input[1], axes, part="align"), output=node.output[0])
    return emit.nodes


def _lp_pool(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """In opset 1 the order was a float, and 2 if absent, as later."""
    order = attributes(node).get("p")
    if not isinstance(order, float):
        return None
    if not order.is_integer():
        raise UnsupportedModelError(f"{describe_node(node)} has the order {order}; ONNX allows integers since opset 2")
    return _reissue(node, editor, list(node.input), {"p": int(order)})


def _reshape(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    shape = attributes(node).get("shape")
    if shape is None:
        return None
    target = _constant(editor, node, "shape", list(shape))
    return _reissue(node, editor, [node.input[0], target], dict.fromkeys(("shape", "consumed_inputs")))


def _resize(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """In opset 10, coordinates were mapped and rounded down; ONNX Runtime rounds what shrinks up."""
    if version >= 11:
        return None
    changes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales, mode = editor.constant(node.input[1]), attributes(node).get("mode", "nearest")
    if mode != "nearest" or scales is None or (scales >= 1).all():
        return _reissue(node, editor, [node.input[0], "", node.input[1]], changes)
    emit, kept = Emitter(editor, node), {**attributes(node), **changes}
    grown = emit.constant(np.maximum(scales, 1).astype(np.float32), "grown")
    shrunk = emit.constant(np.minimum(scales, 1).astype(np.float32), "shrunk")
    value = node.input[0]
    if (scales > 1).any():
        value = emit("Resize", value, "", grown, part="grow", **kept)
    emit("Resize", value, "", shrunk, output=node.output[0], **{**kept, "nearest_mode": "ceil"})
    return emit.nodes


def _roi_align(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if version >= 16:
        return None
    changes = {"coordinate_transformation_mode": "output_half_pixel"}
    return _reissue(node, editor, list(node.input), changes)


def _scatter(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    return _reissue(node, editor, list(node.input), {}, operator="ScatterElements")


def _slice(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    settings = attributes(node)
    if "starts" not in settings:
        return None
    axes = settings.get("axes", list(range(len(settings["starts"]))))
    emit = Emitter(editor, node)
    named = [
        emit.constant(list(v), k)
        for k, v in (("starts", settings["starts"]), ("ends", settings["ends"]), ("axes", axes))
    ]
    emit("Slice", node.input[0], *named, output=node.output[0])
    return emit.nodes


def _softmax(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """Before opset 13 the dimensions from ``axis`` on were normalised together."""
    if version >= 13:
        return None
    rank = _rank(editor, node, node.input[0])
    axis = attributes(node).get("axis", 1) % rank
    shape = editor.shape(node.input[0])
    if axis == rank - 1 or (shape and math.prod(shape[axis + 1 :]) == 1):
        return _reissue(node, editor, list(node.input), {"axis": axis})
    emit = Emitter(editor, node)
    flat = emit("Flatten", node.input[0], part="flatten", axis=axis)
    normal = emit(node.op_type, flat, axis=1)
    target = emit("Shape", node.input[0], part="shape")
    emit("Reshape", normal, target, part="unflatten", output=node.output[0])
    return emit.nodes


def _split(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if version < 2 and len(node.input) > 1:
        return _reissue(node, editor, list(node.input), {"axis": attributes(node).get("axis", 0)})
    return _attribute_to_input("split", 1)(node, editor, version)


def _tile(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if version >= 6:
        return None
    tiles, axis = (editor.constant(optional_input(node, index)) for index in (1, 2))
    if tiles is None or axis is None:
        raise UnsupportedModelError(
            f"{describe_node(node)} of opset {version} repeats a number of times that is not constant"
        )
    repeats = [1] * _rank(editor, node, node.input[0])
    repeats[int(axis.item())] = int(tiles.item())
    return _reissue(node, editor, [node.input[0], _constant(editor, node, "repeats", repeats)], {})


def _top_k(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    count = attributes(node).get("k")
    if count is None:
        return None
    return _reissue(node, editor, [node.input[0], _constant(editor, node, "k", [count])], {"k": None})


def _upsample(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    settings = attributes(node)
    scales = settings.get("scales")
    if "height_scale" in settings:
        scales = [1.0, 1.0, settings["height_scale"], settings["width_scale"]]
    emit = Emitter(editor, node)
    name = node.input[1] if scales is None else emit.constant(np.asarray(scales, np.float32), "scales")
    mode = "linear" if settings.get("mode", "nearest") in ("linear", "bilinear") else "nearest"
    emit(
        "Resize",
        node.input[0],
        "",
        name,
        output=node.output[0],
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return emit.nodes


_LARGEST = float(np.finfo(np.float32).max)
_FIRST_OPSET_INPLACE = (
    *("Abs", "Ceil", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log", "Max", "Mean"),
    *("Min", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Sum", "Tanh"),
)
_BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

UPGRADES: Mapping[str, Upgrade] = {
    **dict.fromkeys(_FIRST_OPSET_INPLACE, _drop("consumed_inputs")),
    **dict.fromkeys(_BROADCASTING, _broadcast),
    **dict.fromkeys(GATES, _drop("output_sequence")),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), _attribute_to_input("axes", 1)),
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Dropout": _dropout,
    "Gemm": _drop("broadcast"),
    **dict.fromkeys(("GlobalLpPool", "LpPool"), _lp_pool),
    "PRelu": _p_relu,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Scan": scan_by_sequence,
    "Scatter": _scatter,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "TopK": _top_k,
    "Upsample": _upsample,
}
