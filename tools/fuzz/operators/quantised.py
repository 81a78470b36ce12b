"""Layers of quantised models: QuantizeLinear and DequantizeLinear pairs, or operators on 8-bit integers.

Results are dequantised: next to a tie, both sides may be right and differ by one step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.fuzz.graph import Graph, UnfitError, Value
from tools.fuzz.operators.windows import groups_of, window

_KINDS = ("int8", "uint8")
_SPAN = 4.0


def _numbers(graph: Graph, kind: str, span: float = _SPAN) -> list[Value]:
    """Return a scale and a zero point whose 8-bit range covers the usual values."""
    zero = 0 if kind == "int8" else 128
    if graph.chance(0.4):
        zero += graph.integer(-100, 100)
    scale = np.float32(span * graph.one_of((0.5, 1.0, 1.0, 2.0)) / 127)
    return [graph.constant(np.array(scale)), graph.constant(np.array(zero, kind))]


def _pair(graph: Graph, value: Value, kind: str) -> Value:
    """Return a value after a QuantizeLinear and DequantizeLinear pair."""
    numbers = _numbers(graph, kind)
    return graph.op("DequantizeLinear", graph.op("QuantizeLinear", value, *numbers), *numbers)


def _source(graph: Graph, *ranks: int) -> tuple[Value, str]:
    """Return a value after such a pair, and its 8-bit type."""
    kind = graph.one_of(_KINDS)
    value = graph.image(*ranks)
    return _pair(graph, value, kind), kind


def _stored(graph: Graph, shape: tuple[int, ...], scale: float, axis: int, kind: str = "int8") -> list[Value]:
    """Return an 8-bit weight, its scale and its zero point; the latter two per tensor or per index of an axis."""
    limits = np.iinfo(kind)
    zero = 0 if kind == "int8" else graph.integer(100, 150)
    numbers = graph.random.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)
    count = shape[axis] if graph.chance(0.5) else 0
    scales = np.asarray(scale / 60 * (0.5 + graph.random.random(count or ()))).astype(np.float32)
    zeros = np.full(scales.shape, zero, kind)
    return [graph.constant(each) for each in (numbers, scales, zeros)]


def _weight(graph: Graph, shape: tuple[int, ...], scale: float, axis: int) -> Value:
    numbers, scales, zeros = _stored(graph, shape, scale, axis)
    return graph.op("DequantizeLinear", numbers, scales, zeros, **({"axis": axis} if scales.rank else {}))


def _geometry(graph: Graph, image: Value) -> tuple[dict[str, Any], tuple[int, ...], float]:
    """Return the attributes of a convolution, the shape of its filters, and their scale."""
    channels = image.shape[1]
    groups = groups_of(graph, channels)
    attributes = window(graph, image.shape[2:])
    shape = (
        groups * max(1, graph.one_of((1, 3, 8, 16, 17)) // groups),
        channels // groups,
        *attributes["kernel_shape"],
    )
    return attributes | {"group": groups}, shape, 1 / math.sqrt(math.prod(shape[1:]))


def convolution(graph: Graph) -> None:
    """Add a convolution between such pairs."""
    image, kind = _source(graph, 4)
    attributes, shape, scale = _geometry(graph, image)
    bias = [graph.weight(shape[0])] if graph.chance(0.6) else []
    result = graph.op("Conv", image, _weight(graph, shape, scale, 0), *bias, **attributes)
    if graph.chance(0.5):
        result = graph.op("Relu", result)
    _pair(graph, result, kind)


def product(graph: Graph) -> None:
    """Add a matrix product between such pairs."""
    value, kind = _source(graph, 2, 3)
    inner, width = value.shape[-1], graph.size()
    result = graph.op("MatMul", value, _weight(graph, (inner, width), 1 / math.sqrt(inner), 1))
    if graph.chance(0.5):
        result = graph.op("Add", result, graph.weight(width))
    _pair(graph, result, kind)


def addition(graph: Graph) -> None:
    """Add a sum or product of two values of one shape between such pairs."""
    value, kind = _source(graph, 2, 3, 4)
    other = graph.input(value.shape) if graph.chance(0.5) else graph.op("Neg", value)
    result = graph.op(graph.one_of(("Add", "Add", "Mul")), value, _pair(graph, other, kind))
    _pair(graph, result, kind)


def moved(graph: Graph) -> None:
    """Add a pooling, a Concat, an activation or a Transpose between such pairs."""
    image, kind = _source(graph, 4)
    choice = graph.integer(0, 4)
    if choice == 0:
        attributes = window(graph, image.shape[2:], dilates=False, narrow=True)
        result = graph.op(graph.one_of(("MaxPool", "AveragePool")), image, **attributes)
    elif choice == 1:
        result = graph.op("GlobalAveragePool", image)
    elif choice == 2:
        result = graph.op("Concat", image, image, axis=1)
    elif choice == 3:
        result = graph.op(graph.one_of(("Relu", "Sigmoid", "HardSwish")), image)
    else:
        result = graph.op("Transpose", image, perm=[0, 2, 3, 1])
    _pair(graph, result, kind)


def integer_convolution(graph: Graph) -> None:
    """Add a QLinearConv."""
    image, kind = graph.image(4), graph.one_of(_KINDS)
    attributes, shape, scale = _geometry(graph, image)
    numbers = _numbers(graph, kind)
    stored = graph.op("QuantizeLinear", image, *numbers)
    weight = _stored(graph, shape, scale, 0)
    after = _numbers(graph, kind)
    step = numbers[0].array, weight[1].array
    bias = []
    if graph.chance(0.6) and step[0] is not None and step[1] is not None:
        steps = np.broadcast_to(step[0] * step[1], shape[:1])
        bias = [graph.constant(np.rint(graph.random.standard_normal(shape[0]) / steps).astype(np.int32))]
    result = graph.op("QLinearConv", stored, *numbers, *weight, *after, *bias, **attributes)
    graph.op("DequantizeLinear", result, *after)


def integer_product(graph: Graph) -> None:
    """Add a QLinearMatMul."""
    value, kind = graph.image(2, 3), graph.one_of(_KINDS)
    inner, width = value.shape[-1], graph.size()
    numbers, after = _numbers(graph, kind), _numbers(graph, kind)
    stored = graph.op("QuantizeLinear", value, *numbers)
    weight = _stored(graph, (inner, width), 1 / math.sqrt(inner), 1, kind)
    if weight[1].rank:
        raise UnfitError
    graph.op("DequantizeLinear", graph.op("QLinearMatMul", stored, *numbers, *weight, *after), *after)


def dynamic_product(graph: Graph) -> None:
    """Add a product with quantisation ranges that are computed at run time."""
    value = graph.image(2, 3)
    inner, width = value.shape[-1], graph.size()
    stored, scale, zero = graph.ops("DynamicQuantizeLinear", 3, value)
    numbers, scales, zeros = _stored(graph, (inner, width), 1 / math.sqrt(inner), 1, graph.one_of(_KINDS))
    if scales.rank:
        raise UnfitError
    result = graph.op("Cast", graph.op("MatMulInteger", stored, numbers, zero, zeros), to=1)
    graph.op("Mul", result, graph.op("Mul", scale, scales))
