"""Lowers Resize with options that IREE cannot import to weighted sums of gathered rows."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.resized_shapes import has_resizes, shape_in_f32
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.sampling.resize_taps import CROP, CUBIC, WHOLE_PIXEL, Axis, coordinates, taps

# For other combinations IREE 3.13 rounds exact halves wrongly or fails.
_NEAREST_NATIVE = (("half_pixel", "round_prefer_floor"), ("half_pixel", "floor"), ("asymmetric", "floor"))
# IREE 3.13 interpolates in no other.
_RANK_OF_IMAGES = 4
_KEPT_ASPECT = {"not_larger": min, "not_smaller": max}
_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
# ONNX Runtime interpolates these integers in f32 and drops the fraction; of others it does not tell the rounding.
_TRUNCATED = (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32)
# Tables of that many rows are computed here.
_MOST_ROWS = 2**20
# What shrinks more has more than 64 taps, of three operators each, and is a product with a matrix of at most so many
# weights; then an infinity or NaN is in all results along the axis. Larger ones have up to 512 taps.
_MOST_SHRINKING = 32
_MOST_WEIGHTS = 2**24
_MOST_BY_TAPS = 256


def gather_resize(model: ModelProto) -> tuple[str, ...]:
    """Lower ``Resize`` with options that IREE 3.13 does not lower; returns the names of the replaced nodes.

    These are rare coordinate and rounding modes, ``exclude_outside``, other cubic coefficients, subsets of axes,
    scales that do not divide evenly, and interpolation of other types than f32. Integers are interpolated in f32.

    Each axis is resized by a sum over taps of gathered rows times weights (ONNX operator page of Resize, version 19).
    """
    return rewrite_nodes(model, _lowered)


def resize_by_decimals(model: ModelProto) -> tuple[str, ...]:
    """Lower ``Resize`` by factors whose sizes ONNX's own inference finds another way than runtimes (``shape_in_f32``).

    That is before the simplifier, which infers shapes by ONNX and makes them constants. Returns the replaced nodes.
    """
    if not has_resizes(model.graph):
        return ()
    infer_shapes(model)
    return rewrite_nodes(model, lambda node, editor: _lowered(node, editor) if shape_in_f32(node, editor) else None)


def _lowered(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "Resize":
        return None
    settings = attributes(node)
    shape, target = editor.shape(node.input[0]), editor.shape(node.output[0])
    if shape is None or target is None:
        return None
    axes = _resized_axes(node, editor, shape, target)
    if axes is None:
        return None
    if not axes:
        emit = Emitter(editor, node)
        emit("Identity", node.input[0], output=node.output[0])
        return emit.nodes
    if _is_native(settings, axes, len(shape), editor.element_type(node.input[0])):
        return _by_sizes(node, editor) if shape_in_f32(node, editor) else None
    if max(axis.target for axis in axes) > _MOST_ROWS:
        raise UnsupportedModelError(
            f"{describe_node(node)} resizes a dimension to more than the {_MOST_ROWS} elements that are supported"
        )
    emit = Emitter(editor, node)
    element = editor.element_type(node.input[0])
    is_whole, is_widened = _is_whole(node, element, settings), _is_widened(element, settings)
    is_cast = is_whole or is_widened
    value = emit("Cast", node.input[0], part="float", to=TensorProto.FLOAT) if is_cast else node.input[0]
    outside = _outside(axes, target) if settings.get("coordinate_transformation_mode") == CROP else None
    for axis in axes:
        last = axis is axes[-1] and outside is None and not is_cast
        value = _resize_axis(emit, value, axis, settings, node.output[0] if last else "")
    if is_whole:
        value = _truncated(emit, value, node.output[0] if outside is None else "")
    elif is_widened:
        output = node.output[0] if outside is None else ""
        value = emit("Cast", value, part="" if output else "narrow", output=output, to=element)
    if outside is not None:
        filler = emit.like(settings.get("extrapolation_value", 0.0), node.input[0], "filler")
        emit("Where", emit.constant(outside, "outside"), filler, value, part="fill", output=node.output[0])
    return emit.nodes


def _by_sizes(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The node with the sizes of its result in place of factors."""
    emit = Emitter(editor, node)
    sizes = emit.constant(np.asarray(editor.shape(node.output[0]), np.int64), "sizes")
    emit.copy([node.input[0], "", "", sizes], node.output[0])
    return emit.nodes


def _is_whole(node: NodeProto, element: int, settings: dict[str, object]) -> bool:
    """Whether integers are interpolated, which takes fractions.

    Raises:
        UnsupportedModelError: ONNX Runtime does not do that, or rounds it in ways that differ by type.
    """
    mode = settings.get("mode", "nearest")
    if mode == "nearest" or not element or element in _FLOATS:
        return False
    if element in _TRUNCATED and mode == "linear" and not settings.get("antialias"):
        return True
    name = TensorProto.DataType.Name(element).lower()
    how = f"mode '{mode}'" + (" with antialias" if settings.get("antialias") else "")
    raise UnsupportedModelError(
        f"{describe_node(node)} resizes {name} in {how}, whose rounding is not defined; cast to float32 around it"
    )


def _is_widened(element: int, settings: dict[str, object]) -> bool:
    """Whether many taps of numbers of 16 bits are added, whose sums would be rounded as often."""
    return element in _NARROW and (settings.get("mode") == "cubic" or bool(settings.get("antialias")))


def _truncated(emit: Emitter, value: str, output: str) -> str:
    """The input's type of f32 values, towards zero."""
    element = emit.editor.element_type(emit.node.input[0])
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(element))
    # 2**31 - 1 is no f32, and is rounded up to what no int32 holds.
    high = np.float32(limits.max) if element != TensorProto.INT32 else np.nextafter(np.float32(2**31), np.float32(0))
    bounds = [emit.constant(np.asarray(bound, np.float32), "bound") for bound in (limits.min, high)]
    held = emit("Clip", value, *bounds, part="clamp")
    return emit("Cast", held, part="" if output else "whole", output=output, to=element)


def _outside(axes: list[Axis], target: tuple[int, ...]) -> Array:
    """Where the result reads outside the input, in a shape that broadcasts to the result's."""
    outside = np.zeros([1] * len(target), bool)
    for axis in axes:
        # In ONNX Runtime's type: rounding decides whether the last element is read.
        where = coordinates(axis, CROP, np.float32)
        column = [-1 if index == axis.index else 1 for index in range(len(target))]
        outside = outside | ((where < 0) | (where > axis.size - 1)).reshape(column)
    return outside


def _resized_axes(
    node: NodeProto, editor: GraphEditor, shape: tuple[int, ...], target: tuple[int, ...]
) -> list[Axis] | None:
    """The axes that are resized; None if it is not known how.

    ONNX Runtime copies what keeps its size in all axes, and crops no axis whose scale is 1.
    """
    listed = attributes(node).get("axes", list(range(len(shape))))
    scales = [to / size for size, to in zip(shape, target, strict=True)]
    if name := optional_input(node, 2):
        given = editor.constant(name)
        if given is None:
            return None
        if given.size:
            if not (given > 0).all():
                raise UnsupportedModelError(
                    f"{describe_node(node)} resizes by the scales {given.tolist()}, which must be positive; "
                    "export the model again"
                )
            for axis, scale in zip(listed, given.tolist(), strict=True):
                scales[axis] = scale
    if (policy := attributes(node).get("keep_aspect_ratio_policy", "stretch")) in _KEPT_ASPECT:
        sizes = editor.constant(optional_input(node, 3))
        if sizes is None:
            return None
        # The one factor of all axes; the result's sizes are rounded, so their quotients are others.
        factors = [to / shape[axis] for axis, to in zip(listed, sizes.tolist(), strict=True)]
        for axis in listed:
            scales[axis] = _KEPT_ASPECT[policy](factors)
    if shape == target:
        return []
    crops = [(0.0, 1.0)] * len(shape)
    if attributes(node).get("coordinate_transformation_mode") == CROP:
        region = editor.constant(optional_input(node, 1))
        if region is None or region.size != 2 * len(listed):
            return None
        for axis, begin, end in zip(listed, region[: len(listed)], region[len(listed) :], strict=True):
            crops[axis] = (float(begin), float(end))
    return [
        Axis(index, size, to, scale, crop)
        for index, (size, to, scale, crop) in enumerate(zip(shape, target, scales, crops, strict=True))
        if to != size or scale != 1.0
    ]


def _is_native(settings: dict[str, object], axes: list[Axis], rank: int, element: int) -> bool:
    mode, transform = settings.get("mode", "nearest"), settings.get("coordinate_transformation_mode", "half_pixel")
    # Interpolation between rows does not see the last bit of a factor, and choosing the nearest one may.
    is_rounded = mode == "linear"
    even = all(_is_even(axis, is_rounded=is_rounded) for axis in axes)
    if settings.get("exclude_outside") or "axes" in settings or not even or axes[0].index < 2:
        return False
    if settings.get("antialias") or transform in (CROP, WHOLE_PIXEL):
        return False
    if mode == "nearest":
        return (transform, settings.get("nearest_mode", "round_prefer_floor")) in _NEAREST_NATIVE
    if element != TensorProto.FLOAT or rank != _RANK_OF_IMAGES:
        return False
    return mode == "linear" or settings.get("cubic_coeff_a", CUBIC) == CUBIC


def _is_even(axis: Axis, *, is_rounded: bool) -> bool:
    """Whether the factor is the quotient of the sizes, or ``is_rounded`` to f32 is."""
    quotient = axis.target / axis.size
    if is_rounded and np.float32(quotient) == np.float32(axis.scale):
        return True
    return axis.size * axis.scale == axis.target or axis.scale == quotient


def _resize_axis(emit: Emitter, value: str, axis: Axis, settings: dict[str, object], output: str) -> str:
    element, is_wide = emit.editor.element_type(emit.node.input[0]), _is_wide(axis, settings)
    if is_wide and axis.size * axis.target > _MOST_WEIGHTS:
        if axis.scale < 1 / _MOST_BY_TAPS:
            raise UnsupportedModelError(
                f"{describe_node(emit.node)} makes {axis.target} elements of {axis.size}, which each read more than "
                f"{2 * _MOST_BY_TAPS}; resize in several steps"
            )
        is_wide = False
    rows, weights = taps(axis, settings, is_whole=element in _TRUNCATED)
    if weights is None:
        part = "" if output else f"axis{axis.index}"
        return emit("Gather", value, emit.constant(rows[0], "rows"), part=part, output=output, axis=axis.index)
    rank = len(emit.editor.shape(emit.node.input[0]) or ())
    is_cast = element not in _FLOATS or _is_widened(element, settings)
    dtype = np.dtype(np.float32) if is_cast else emit.dtype(emit.node.input[0])
    if is_wide:
        matrix = np.zeros((axis.size, axis.target))
        np.add.at(matrix, (rows, np.arange(axis.target)), weights)
        return _multiplied(emit, value, axis, matrix.astype(dtype), output)
    column = [-1 if index == axis.index else 1 for index in range(rank)]
    total = ""
    for tap, (positions, factors) in enumerate(zip(rows, weights, strict=True)):
        taken = emit(
            "Gather", value, emit.constant(positions, "rows"), part=f"axis{axis.index}_tap{tap}", axis=axis.index
        )
        factor = emit.constant(factors.reshape(column).astype(dtype), "weights")
        last = tap == len(rows) - 1
        scaled = emit("Mul", taken, factor, part=f"axis{axis.index}_weight{tap}")
        if total:
            part = "" if last and output else f"axis{axis.index}_sum{tap}"
            scaled = emit("Add", total, scaled, part=part, output=output if last else "")
        total = scaled
    return total


def _is_wide(axis: Axis, settings: dict[str, object]) -> bool:
    is_weighted = bool(settings.get("antialias")) and settings.get("mode", "nearest") != "nearest"
    return is_weighted and axis.scale < 1 / _MOST_SHRINKING


def _multiplied(emit: Emitter, value: str, axis: Axis, weights: Array, output: str) -> str:
    """The product with weights, [size, target], along an axis."""
    order = list(range(len(emit.editor.shape(emit.node.input[0]) or ())))
    order[axis.index], order[-1] = order[-1], order[axis.index]
    part = f"axis{axis.index}"
    turned = emit("Transpose", value, part=f"{part}_rows", perm=order)
    product = emit("MatMul", turned, emit.constant(weights, "weights"), part=f"{part}_product")
    return emit("Transpose", product, part="" if output else f"{part}_back", output=output, perm=order)
