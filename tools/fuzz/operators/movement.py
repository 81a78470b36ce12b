"""Operators that move elements without arithmetic: reshapes, slices, concatenations and splits."""

from __future__ import annotations

import math

import numpy as np

from tools.fuzz.graph import Graph, UnfitError, Value

_REALS_AND_INTEGERS = ("float32", "float16", "int32", "int64")


def _any(graph: Graph, *ranks: int) -> Value:
    """Return a value of any element type."""
    return graph.pick(*ranks, dtypes=(graph.real, graph.real, "int32", "int64", "int8", "uint8", "bool"))


def transpose(graph: Graph) -> None:
    """Add a Transpose."""
    value = _any(graph, 2, 3, 4, 5)
    order = [int(each) for each in graph.random.permutation(value.rank)]
    attributes = {} if graph.chance(0.1) else {"perm": order}
    graph.op("Transpose", value, exact=True, **attributes)


def reshape(graph: Graph) -> None:
    """Add a Reshape; one dimension of the target shape may be -1, which ONNX infers."""
    value = _any(graph)
    left, shape = value.elements, []
    for _ in range(graph.integer(0, 3)):
        size = graph.one_of([index for index in range(1, left + 1) if left % index == 0])
        shape.append(size)
        left //= size
    shape.insert(graph.integer(0, len(shape)), left)
    if graph.chance(0.3):
        shape[graph.integer(0, len(shape) - 1)] = -1
    graph.op("Reshape", value, graph.integers(*shape), exact=True)


def flatten(graph: Graph) -> None:
    """Add a Flatten."""
    value = graph.pick(2, 3, 4)
    graph.op("Flatten", value, axis=graph.integer(0, value.rank), exact=True)


def squeeze(graph: Graph) -> None:
    """Add a Squeeze, or an Unsqueeze."""
    value = _any(graph)
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    if ones and graph.chance(0.5):
        graph.op("Squeeze", value, graph.integers(graph.one_of(ones)), exact=True)
    elif value.rank < 5:
        graph.op("Unsqueeze", value, graph.integers(graph.integer(-value.rank - 1, value.rank)), exact=True)


def concat(graph: Graph) -> None:
    """Add a Concat of a value with other values of a fitting shape, itself, weights and new inputs."""
    value = _any(graph, 1, 2, 3, 4)
    axis = graph.axis(value)
    parts = [value]
    for _ in range(graph.integer(1, 3)):
        shape = list(value.shape)
        shape[axis] = graph.size()
        if graph.chance(0.3):
            parts.append(value)
        elif value.is_real and graph.chance(0.3):
            parts.append(graph.weight(*shape))
        elif graph.chance(0.4):
            parts.append(graph.input(shape, value.dtype))
        else:
            parts.append(_fitting(graph, value, axis))
    graph.random.shuffle(parts)
    graph.op("Concat", *parts, axis=axis, exact=True)


def _fitting(graph: Graph, value: Value, axis: int) -> Value:
    """Return a value whose shape differs from the given value's along one axis at most, or the given value."""

    def others(each: Value) -> list[int]:
        return [size for index, size in enumerate(each.shape) if index != axis % value.rank]

    for _ in range(6):
        found = graph.pick(value.rank, dtypes=[value.dtype])
        if others(found) == others(value):
            return found
    return value


def split(graph: Graph) -> None:
    """Add a Split into equal parts or parts of given sizes."""
    value = _any(graph, 1, 2, 3, 4)
    axis = graph.axis(value)
    size = value.shape[axis]
    if size < 2:
        raise UnfitError
    if graph.opset >= 18 and graph.chance(0.3):
        count = graph.integer(2, min(size, 4))
        graph.ops("Split", count, value, axis=axis, num_outputs=count, exact=True)
        return
    cuts = sorted({graph.integer(1, size - 1) for _ in range(graph.integer(1, 3))})
    sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, size], strict=True)]
    graph.ops("Split", len(sizes), value, graph.integers(*sizes), axis=axis, exact=True)


def slices(graph: Graph) -> None:
    """Add a Slice, forwards or backwards, with steps."""
    value = _any(graph, 1, 2, 3, 4)
    axes = sorted({graph.integer(0, value.rank - 1) for _ in range(graph.integer(1, 2))})
    starts, ends, steps = [], [], []
    for axis in axes:
        size = value.shape[axis]
        begin = graph.integer(0, size - 1)
        end = graph.integer(begin + 1, size)
        step = graph.one_of((1, 1, 1, 2, 3))
        if graph.chance(0.2):
            begin, end, step = end - 1, begin - 1 if begin else -size - 1, -step
        elif graph.chance(0.3):
            end = 1 << 31 if graph.chance(0.5) and end == size else end
            begin -= size
        starts.append(begin)
        ends.append(end)
        steps.append(step)
    operands = [graph.integers(*each) for each in (starts, ends, axes, steps)]
    graph.op("Slice", value, *operands, exact=True)


def gather(graph: Graph) -> None:
    """Add a Gather by constant indices, which may be negative."""
    value = _any(graph, 1, 2, 3, 4)
    axis = graph.axis(value)
    size = value.shape[axis]
    shape = graph.one_of(((), (1,), (3,), (2, 3), (size,)))
    indices = graph.random.integers(-size, size, shape)
    dtype = graph.one_of((np.int64, np.int32))
    graph.op("Gather", value, graph.constant(np.asarray(indices).astype(dtype)), axis=axis, exact=True)


def gather_elements(graph: Graph) -> None:
    """Add a GatherElements by constant indices along one axis."""
    value = graph.pick(1, 2, 3, dtypes=_REALS_AND_INTEGERS)
    axis = graph.axis(value)
    shape = [graph.integer(1, each) for each in value.shape]
    indices = graph.random.integers(0, value.shape[axis], shape)
    graph.op("GatherElements", value, graph.constant(indices), axis=axis, exact=True)


def embedding(graph: Graph) -> None:
    """Add a Gather of the rows of a table by an input."""
    rows, width = graph.integer(2, 40), graph.size()
    shape = tuple(graph.one_of((1, 2, 5, 7)) for _ in range(graph.integer(1, 2)))
    numbers = graph.input(shape, graph.one_of(("int64", "int32")))
    graph.op("Gather", graph.weight(rows, width), numbers, exact=True)


def pad(graph: Graph) -> None:
    """Add a Pad by a constant, the edge or a reflection; the widths may be zero or negative."""
    value = graph.pick(1, 2, 3, 4)
    mode = graph.one_of(("constant", "constant", "constant", "reflect", "edge"))
    most = [min(each - 1, 3) if mode == "reflect" else 3 for each in value.shape]
    amounts = [graph.integer(0, each) if graph.chance(0.5) else 0 for each in (*most, *most)]
    if mode == "constant" and graph.chance(0.15):
        axis = graph.integer(0, value.rank - 1)
        amounts[axis] = -1 if value.shape[axis] > 1 else 0
    filler = []
    if mode == "constant" and graph.chance(0.6):
        filler = [graph.weight(low=graph.one_of((0.0, 1.0, -2.0)), scale=0.0)]
    graph.op("Pad", value, graph.integers(*amounts), *filler, mode=mode, exact=True)


def expand(graph: Graph) -> None:
    """Add an Expand of dimensions of 1, or to a higher rank."""
    value = _any(graph)
    shape = [graph.one_of((1, 2, 5)) if each == 1 else each for each in value.shape]
    if value.rank < 4 and graph.chance(0.4):
        shape = [graph.one_of((1, 2, 3)), *shape]
    graph.op("Expand", value, graph.integers(*shape), exact=True)


def tile(graph: Graph) -> None:
    """Add a Tile."""
    value = graph.pick(1, 2, 3, 4, dtypes=_REALS_AND_INTEGERS)
    graph.op("Tile", value, graph.integers(*(graph.one_of((1, 1, 2, 3)) for _ in value.shape)), exact=True)


def triangle(graph: Graph) -> None:
    """Add a Trilu, upper or lower."""
    value = graph.pick(2, 3)
    diagonal = graph.constant(np.array(graph.integer(-2, 2), np.int64))
    graph.op("Trilu", value, diagonal, upper=graph.integer(0, 1), exact=True)


def strided_parts(graph: Graph) -> None:
    """Add the Focus block: four slices of every second pixel, concatenated along the channels."""
    value = graph.pick(4)
    sizes = [each - each % 2 for each in value.shape[2:]]
    if math.prod(sizes) == 0:
        raise UnfitError
    parts = []
    for row in range(2):
        for column in range(2):
            bounds = ((row, column), tuple(sizes), (2, 3), (2, 2))
            parts.append(graph.op("Slice", value, *(graph.integers(*bound) for bound in bounds), exact=True))
    graph.op("Concat", *parts, axis=1, exact=True)
