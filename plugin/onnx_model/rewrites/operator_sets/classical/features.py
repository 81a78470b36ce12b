"""Lowers what prepares features: selections, scales, norms, imputed values, and codes of categories.

Definitions: https://onnx.ai/onnx/operators/index.html#ai-onnx-ml. Where they leave results open, ONNX Runtime's count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

_MOST = float(np.finfo(np.float32).max)
# A sum of squares of up to 2^64 numbers of float32 does not overflow if each is multiplied by this before.
_SMALL = 2.0**-96


def in_floats(emit: Emitter, value: str) -> str:
    """A value in float32, the type in which most of these operators compute."""
    if emit.dtype(value) == np.float32:
        return value
    return emit("Cast", value, part="floats", to=TensorProto.FLOAT)


def _selected(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``ArrayFeatureExtractor(x, indices)``: columns of x, whose last axis they are; of a vector as a row."""
    rank, count = editor.rank(node.input[0]), editor.shape(node.input[1])
    if rank is None or count is None:
        return None
    emit = Emitter(editor, node)
    indices = emit("Reshape", node.input[1], emit.constant([math.prod(count)], "count"), part="indices")
    if rank > 1:
        emit("Gather", node.input[0], indices, output=node.output[0], axis=-1)
    else:
        row = emit("Gather", node.input[0], indices, axis=0)
        emit("Unsqueeze", row, emit.constant([0], "row"), part="row", output=node.output[0])
    return emit.nodes


def _binarised(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """``Binarizer(x)``: one where x exceeds a threshold, else zero, in the type of x."""
    emit = Emitter(editor, node)
    threshold = emit.like(attributes(node).get("threshold", 0.0), node.input[0], "threshold")
    above = emit("Greater", node.input[0], threshold)
    emit("Cast", above, part="number", output=node.output[0], to=emit.editor.element_type(node.input[0]))
    return emit.nodes


def by_feature(values: Sequence[float], shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers of features for a tensor of a shape: features are its second axis, or the only one.

    ONNX Runtime counts elements of tensors of more axes through, and takes each count modulo the features.
    """
    if len(values) == 1 or len(shape) < 3:
        return np.asarray(values, dtype)
    places = np.arange(math.prod(shape)) % shape[1]
    return np.asarray(values, dtype)[places].reshape(shape)


def _scaled(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``Scaler(x)``: (x - offset) * scale in float32, with one number for all features or one for each."""
    shape, settings = editor.shape(node.input[0]), attributes(node)
    if shape is None:
        return None
    offsets, scales = settings.get("offset", []), settings.get("scale", [])
    features = shape[1 if len(shape) > 1 else 0] if shape else 0
    if len(offsets) != len(scales) or len(scales) not in (1, features):
        raise UnsupportedModelError(
            f"{describe_node(node)} has {len(offsets)} offsets and {len(scales)} scales for {features} features; "
            "convert the model again"
        )
    emit = Emitter(editor, node)
    # Doubles are subtracted as such before they are rounded.
    is_double = emit.dtype(node.input[0]) == np.float64
    value, dtype = (node.input[0], np.float64) if is_double else (in_floats(emit, node.input[0]), np.float32)
    centred = emit("Sub", value, emit.constant(by_feature(offsets, shape, dtype), "offset"), part="centre")
    scale = emit.constant(by_feature(scales, shape, dtype), "scale")
    scaled = emit("Mul", centred, scale, output="" if is_double else node.output[0])
    if is_double:
        emit("Cast", scaled, part="floats", output=node.output[0], to=TensorProto.FLOAT)
    return emit.nodes


def _normalised(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``Normalizer(x)``: rows divided by their largest element, or by their first or second norm unless that is 0."""
    shape, norm = editor.shape(node.input[0]), attributes(node).get("norm", "MAX")
    if shape is None:
        return None
    if not 1 <= len(shape) <= 2 or norm not in ("MAX", "L1", "L2"):
        raise UnsupportedModelError(
            f"{describe_node(node)} has {len(shape)} dimensions and the norm {norm!r}; rows of at most two dimensions "
            "and MAX, L1 or L2 were expected"
        )
    emit = Emitter(editor, node)
    value = in_floats(emit, node.input[0])
    if norm == "MAX":
        size = _largest(emit, value)
    elif norm == "L1":
        size = _sum(emit, emit("Abs", value, part="sizes"))
    else:
        value = _with_finite_squares(emit, value)
        size = emit("Sqrt", _sum(emit, emit("Mul", value, value, part="squares")), part="root")
    is_zero = emit("Equal", size, _float(emit, 0), part="is_zero")
    divisor = emit("Where", is_zero, _float(emit, 1), size, part="divisor")
    emit("Div", value, divisor, output=node.output[0])
    return emit.nodes


def _float(emit: Emitter, number: float) -> str:
    return emit.shared_constant(np.asarray(number, np.float32), "number")


def _sum(emit: Emitter, terms: str) -> str:
    return emit("ReduceSum", terms, emit.constant([-1], "axis"), part="norm", keepdims=1)


def _largest(emit: Emitter, value: str) -> str:
    """The largest number of each row, at least the lowest of float32; what is not a number does not count."""
    lowest = _float(emit, -_MOST)
    counts = emit("GreaterOrEqual", value, lowest, part="counts")
    counted = emit("Where", counts, value, lowest, part="counted")
    place = emit("ArgMax", counted, part="largest", axis=-1, keepdims=1)
    return emit("GatherElements", counted, place, part="norm", axis=(emit.editor.rank(emit.node.input[0]) or 1) - 1)


def _with_finite_squares(emit: Emitter, value: str) -> str:
    """Rows of which the squares' sum overflows, times a power of two; other rows as they are.

    ONNX Runtime gives NaN and zeros for such rows, though float32 holds their elements and all results.
    """
    overflows = emit("Greater", _sum(emit, emit("Mul", value, value, part="squares")), _float(emit, _MOST))
    factor = emit("Where", overflows, _float(emit, _SMALL), _float(emit, 1), part="factor")
    return emit("Mul", value, factor, part="scaled")


def _imputed(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``Imputer(x)``: another value in the place of one that stands for a missing one, by feature or for all."""
    shape, settings, emit = editor.shape(node.input[0]), attributes(node), Emitter(editor, node)
    if shape is None:
        return None
    value, dtype = node.input[0], emit.dtype(node.input[0])
    kind = "float" if np.issubdtype(dtype, np.floating) else "int64"
    given, missing = settings.get(f"imputed_value_{kind}s", []), settings.get(f"replaced_value_{kind}", 0)
    features = shape[1 if len(shape) > 1 else 0] if shape else 0
    if not given:
        raise UnsupportedModelError(
            f"{describe_node(node)} has no 'imputed_value_{kind}s' for its input of {dtype.name}; convert the model "
            "again"
        )
    used = by_feature(given if len(given) == features else given[:1], shape, dtype)
    is_missing = emit("Equal", value, emit.like(missing, value, "missing"), part="is_missing")
    if math.isnan(missing):
        is_missing = emit("IsNaN", value, part="is_missing")
    emit("Where", is_missing, emit.constant(used, "imputed"), value, output=node.output[0])
    return emit.nodes


def _joined(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``FeatureVectorizer(x, …)``: features of all operands side by side, of each as many as it says, in float32."""
    shapes = [editor.shape(name) for name in node.input]
    if any(shape is None for shape in shapes):
        return None
    emit, rows = Emitter(editor, node), []
    for name, shape, count in zip(node.input, shapes, attributes(node)["inputdimensions"], strict=True):
        assert shape is not None
        batch = shape[0] if len(shape) > 1 else 1
        features = math.prod(shape) // batch if batch else count
        row = emit("Reshape", in_floats(emit, name), emit.constant([batch, features], "shape"), part="rows")
        if count < features:
            bounds = [emit.constant([bound], "bound") for bound in (0, count, 1)]
            row = emit("Slice", row, *bounds, part="first")
        elif count > features:
            row = emit("Pad", row, emit.constant([0, 0, 0, count - features], "pads"), part="zeros")
        rows.append(row)
    emit("Concat", *rows, output=node.output[0], axis=1)
    return emit.nodes


def _one_hot(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """``OneHotEncoder(x)``: a new last axis with one where x is a category, and zeros elsewhere.

    Fractions are cut off. A value that is no category gives zeros alone, also where the model calls that an error.
    """
    settings, emit = attributes(node), Emitter(editor, node)
    if not settings.get("cats_int64s"):
        raise UnsupportedModelError(
            f"{describe_node(node)} encodes texts, and modules compute with numbers only; encode them outside, and "
            "export the model from the numbers on"
        )
    value = node.input[0]
    if emit.dtype(value) != np.int64:
        value = emit("Cast", value, part="whole", to=TensorProto.INT64)
    value = emit("Unsqueeze", value, emit.constant([-1], "axis"), part="raise")
    is_it = emit("Equal", value, emit.constant(np.array(settings["cats_int64s"], np.int64), "categories"))
    emit("Cast", is_it, part="number", output=node.output[0], to=TensorProto.FLOAT)
    return emit.nodes


FEATURES: Mapping[str, Lowering] = {
    "ArrayFeatureExtractor": _selected,
    "Binarizer": _binarised,
    "FeatureVectorizer": _joined,
    "Imputer": _imputed,
    "Normalizer": _normalised,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaled,
}
