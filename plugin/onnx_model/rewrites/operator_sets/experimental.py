"""Expands operators that were experimental in ONNX until opset 9, and were dropped then; ONNX Runtime still runs them.

Exporters of 2018 and 2019 wrote them, above all those of Core ML and Caffe2. They were never specified; definitions are
those of ONNX Runtime (``core/graph/contrib_ops/contrib_defs.cc``), and for ConstantFill and GivenTensorFill, which it
declares only, those of Caffe2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.limits import MAX_FOLDED_BYTES
from sartor.onnx_model.graphs.walk import describe_node

LAST_OPSET = 9
"""The last opset in which ONNX Runtime knows experimental operators."""


def expand_experimental(model: ModelProto) -> tuple[str, ...]:
    """Expand experimental operators in models up to opset 9; returns the names of the expanded nodes.

    Raises:
        UnsupportedModelError: a node lacks an attribute, or its size is not known.
    """
    version = opset(model)
    if version > LAST_OPSET:
        return ()
    infer_shapes(model)
    return rewrite_nodes(model, partial(_expanded, version=version))


def _expanded(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    expansion = _EXPANSIONS.get(node.op_type)
    if expansion is None or version >= _STANDARD_SINCE.get(node.op_type, math.inf):
        return None
    emit = Emitter(editor, node)
    expansion(emit)
    return emit.nodes


def _affine(emit: Emitter) -> None:
    """``alpha * x + beta``."""
    settings, source = attributes(emit.node), emit.node.input[0]
    scaled = emit("Mul", source, emit.like(settings.get("alpha", 1.0), source, "alpha"))
    shift = emit.like(settings.get("beta", 0.0), source, "beta")
    emit("Add", scaled, shift, part="shift", output=emit.node.output[0])


def _scaled(emit: Emitter, operator: str) -> None:
    """``alpha * f(beta * x)``."""
    settings, source = attributes(emit.node), emit.node.input[0]
    inner = emit("Mul", source, emit.like(settings["beta"], source, "beta"), part="inner")
    alpha = emit.like(settings["alpha"], source, "alpha")
    emit("Mul", emit(operator, inner), alpha, part="outer", output=emit.node.output[0])


def _scale(emit: Emitter) -> None:
    source = emit.node.input[0]
    factor = emit.like(attributes(emit.node).get("scale", 1.0), source, "scale")
    emit("Mul", source, factor, output=emit.node.output[0])


def _image_scaler(emit: Emitter) -> None:
    """``scale * x + bias``, with a bias per channel of an image [N, C, H, W]."""
    settings, source = attributes(emit.node), emit.node.input[0]
    bias = np.array(settings["bias"], emit.dtype(source)).reshape(1, -1, 1, 1)
    scaled = emit("Mul", source, emit.like(settings.get("scale", 1.0), source, "scale"))
    emit("Add", scaled, emit.constant(bias, "bias"), part="shift", output=emit.node.output[0])


def _crop(emit: Emitter) -> None:
    """Without the border (left, top, right, bottom); with ``scale`` (height, width), that size from left and top."""
    settings = attributes(emit.node)
    left, top, right, bottom = settings["border"]
    if "scale" in settings:
        ends = [top + settings["scale"][0], left + settings["scale"][1]]
    else:
        ends = [-bottom or np.iinfo(np.int64).max, -right or np.iinfo(np.int64).max]
    emit("Slice", emit.node.input[0], output=emit.node.output[0], starts=[top, left], ends=ends, axes=[2, 3])


def _thresholded_relu(emit: Emitter) -> None:
    """``x where x > alpha, else 0``, as the operator of that name in opset 10."""
    source = emit.node.input[0]
    above = emit("Greater", source, emit.like(attributes(emit.node).get("alpha", 1.0), source, "alpha"), part="above")
    emit("Where", above, source, emit.like(0.0, source, "zero"), output=emit.node.output[0])
    _describe(emit, keeps_sizes=True)


def _mean_variance_normalization(emit: Emitter) -> None:
    """``(x - mean) / (deviation + 1e-9)`` per channel or of all elements; without the division if so asked."""
    settings, source, output = attributes(emit.node), emit.node.input[0], emit.node.output[0]
    rank = emit.editor.rank(source)
    if rank is None:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} can only be expanded if the rank of its input '{source}' is known; "
            "export the model with opset 17"
        )
    axes = [axis for axis in range(rank) if axis != 1 or settings.get("across_channels")]
    mean = emit("ReduceMean", source, part="mean", axes=axes, keepdims=1)
    scales = settings.get("normalize_variance", 1)
    centred = emit("Sub", source, mean, part="centre", output="" if scales else output)
    if scales:
        variance = emit("ReduceMean", emit("Mul", centred, centred, part="square"), part="variance", axes=axes)
        deviation = emit("Add", emit("Sqrt", variance, part="root"), emit.like(1e-9, source, "least"), part="deviation")
        emit("Div", centred, deviation, output=output)


def _dynamic_slice(emit: Emitter) -> None:
    """A slice whose bounds are inputs, as since opset 10."""
    emit("Slice", *emit.node.input, output=emit.node.output[0])
    _describe(emit, keeps_sizes=False)


def _describe(emit: Emitter, *, keeps_sizes: bool) -> None:
    """Describe the output like the input, or its rank only: inference knows the operator in later opsets only."""
    graph, output, kind = emit.editor.graph, emit.node.output[0], emit.editor.type(emit.node.input[0])
    if kind is None or emit.editor.rank(output) is not None:
        return
    described = helper.make_value_info(output, kind)
    for dim in described.type.tensor_type.shape.dim if not keeps_sizes else ():
        dim.Clear()
    declared = next((value for value in graph.output if value.name == output), None)
    if declared is None:
        graph.value_info.append(described)
    else:
        declared.CopyFrom(described)


def _fill(emit: Emitter) -> None:
    """A tensor of one value or of given values, whose shape is an attribute, or that or the values of the input."""
    node, settings = emit.node, attributes(emit.node)
    shape = (
        settings["shape"] if "shape" in settings else _given_shape(emit, is_shape=bool(settings.get("input_as_shape")))
    )
    shape = [*shape, *settings.get("extra_shape", [])]
    kind = helper.tensor_dtype_to_np_dtype(settings.get("dtype", TensorProto.FLOAT))
    values = settings.get("values", [settings.get("value", 0.0)])
    if len(values) not in (1, math.prod(shape)):
        raise UnsupportedModelError(f"{describe_node(node)} has {len(values)} values for the shape {shape}")
    if math.prod(shape) * kind.itemsize > MAX_FOLDED_BYTES:
        raise UnsupportedModelError(
            f"{describe_node(node)} fills the shape {shape}, which is larger than constants of a model may be"
        )
    filled = np.full(shape, values[0], kind) if len(values) == 1 else np.array(values, kind).reshape(shape)
    emit.editor.set_constant(node.output[0], filled)


def _given_shape(emit: Emitter, *, is_shape: bool) -> list[int]:
    source = optional_input(emit.node, 0)
    shape = emit.editor.constant(source) if is_shape else emit.editor.shape(source)
    if shape is None:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} fills a shape that is not known: make it a constant before exporting"
        )
    return [int(size) for size in shape]


_EXPANSIONS: Mapping[str, Callable[[Emitter], None]] = {
    "Affine": _affine,
    "ConstantFill": _fill,
    "Crop": _crop,
    "DynamicSlice": _dynamic_slice,
    "GivenTensorFill": _fill,
    "ImageScaler": _image_scaler,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "ParametricSoftplus": partial(_scaled, operator="Softplus"),
    "Scale": _scale,
    "ScaledTanh": partial(_scaled, operator="Tanh"),
    "ThresholdedRelu": _thresholded_relu,
}
_STANDARD_SINCE = {"MeanVarianceNormalization": 9}
EXPERIMENTAL = frozenset(_EXPANSIONS)
"""Operators that are known up to ``LAST_OPSET``."""

REFUSED: Mapping[str, str] = {
    "ATen": "calls a function of PyTorch, which ONNX does not define",
    "GRUUnit": "is a step of Caffe2's GRU that reads the lengths of all sequences",
}
"""Operators that cannot be expanded, with the reason."""
