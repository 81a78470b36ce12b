"""Selecting elements by a condition: NonZero and Compress."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.dynamic.steps import Count, Steps
from sartor.onnx_model.graphs.graph import attributes


def compacted(steps: Steps, chosen: str) -> tuple[str, Count]:
    """The indices of the elements of a boolean vector that are true, in their order.

    Returns:
        A vector of the same length, whose elements behind the indices are 0, and the number of indices.
    """
    (size,) = steps.shape(chosen)
    if not size:
        return steps.integers(), Count(steps.scalar(0), 0)
    steps.check_length(size)
    ones = steps("Cast", chosen, to=TensorProto.INT64)
    running = steps("CumSum", ones, steps.scalar(0))
    count = steps("ReduceSum", ones, steps.integers(0), keepdims=0)
    # What is not chosen goes to a place behind all others.
    places = steps("Where", chosen, steps("Sub", running, steps.scalar(1)), steps.scalar(size))
    empty = steps.constant(np.zeros(size + 1, np.int64), "empty")
    written = steps("ScatterElements", empty, places, steps.iota(size), axis=0)
    indices = steps("Slice", written, steps.integers(0), steps.integers(size), steps.integers(0))
    # Several elements are written to that place, but none to those behind the indices.
    return indices, Count(count, size)


def non_zero(steps: Steps) -> None:
    """The coordinates of elements that are not 0, as columns in row-major order."""
    node = steps.node
    value = steps.masked(node.input[0], 0)
    shape = steps.shape(value)
    if not shape:
        raise steps.refusal("its operand has no dimensions")
    is_bool = steps.editor.element_type(value) == TensorProto.BOOL
    chosen = value if is_bool else steps("Not", steps("Equal", value, steps.like(0, value, "zero")))
    indices, count = compacted(steps, steps.reshaped(chosen, math.prod(shape)))
    rows = [steps("Unsqueeze", row, steps.integers(0)) for row in coordinates(steps, indices, shape)]
    steps("Concat", *rows, axis=0, output=node.output[0])
    steps.set_counted(node.output[0], 1, count)
    if node.input[0] not in steps.tail.counted:
        steps.tail.true_elements[node.input[0]] = count


def coordinates(steps: Steps, indices: str, shape: tuple[int, ...]) -> list[str]:
    """The coordinates of elements of a tensor, from their indices in row-major order."""
    starts = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        quotient = indices if stride == 1 else steps("Div", indices, steps.scalar(stride))
        starts.append(quotient if axis == 0 else steps("Mod", quotient, steps.scalar(max(size, 1))))
    return starts


def compress(steps: Steps) -> None:
    """The slices along an axis, or the elements, for which a condition is true."""
    node = steps.node
    value, condition = node.input
    axis = attributes(node).get("axis")
    chosen, known = steps.masked(condition, False), steps.tail.counted.get(value)
    shape = steps.shape(value)
    if axis is None:
        if known is not None and math.prod(shape[: known.axis]) != 1:
            raise steps.refusal("it flattens a value whose size along another axis depends on data")
        if known is not None:
            raise steps.refusal("it flattens a value whose size depends on data")
        value, shape, axis = steps.reshaped(value, math.prod(shape)), (math.prod(shape),), 0
    axis %= len(shape)
    (length,) = steps.shape(chosen)
    if length > shape[axis]:
        chosen = steps("Slice", chosen, steps.integers(0), steps.integers(shape[axis]), steps.integers(0))
    if known is not None:
        if known.axis != axis:
            raise steps.refusal("two of its dimensions would depend on data")
        within = steps("Less", steps.iota(min(length, shape[axis])), known.count.name)
        chosen = steps("And", chosen, within)
    indices, count = compacted(steps, chosen)
    steps("Gather", value, indices, axis=axis, output=node.output[0])
    steps.set_counted(node.output[0], axis, count)
