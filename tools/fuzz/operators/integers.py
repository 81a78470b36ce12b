"""Operators on integers and booleans; their results must be equal to the last bit."""

from __future__ import annotations

import numpy as np

from tools.fuzz.graph import Graph, Value
from tools.fuzz.operators.elementwise import broadcast

_WIDE = ("int32", "int64")
_CODES = {"int32": 6, "int64": 7, "float32": 1, "float16": 10}


def wide(graph: Graph) -> Value:
    """Return a value of a wide integer type: an existing one, or a new 8-bit input that is cast."""
    if graph.chance(0.5):
        return graph.pick(dtypes=_WIDE)
    narrow = graph.input(graph.shape(graph.integer(1, 4)), graph.one_of(("int8", "uint8")))
    return graph.op("Cast", narrow, to=_CODES[graph.one_of(_WIDE)])


def arithmetic(graph: Graph) -> None:
    """Add an operation on two values; divisors are positive."""
    value = wide(graph)
    kind = graph.one_of(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"))
    drawn = graph.random.integers(1 if kind in ("Div", "Mod") else -9, 10, broadcast(graph, value))
    other = graph.constant(np.asarray(drawn).astype(value.dtype))
    graph.op(kind, value, other)


def unary(graph: Graph) -> None:
    """Add an operation on one value."""
    graph.op(graph.one_of(("Neg", "Abs", "Sign", "Identity")), wide(graph))


def reduced(graph: Graph) -> None:
    """Add a sum, a running sum, an extreme or the position of the maximum along an axis."""
    value = wide(graph)
    axis = graph.axis(value)
    kind = graph.one_of(("ReduceSum", "ReduceMax", "ReduceMin", "ArgMax", "CumSum"))
    if kind == "ArgMax":
        graph.op(kind, value, axis=axis)
    elif kind == "CumSum":
        graph.op(kind, value, graph.constant(np.array(axis, np.int64)))
    elif kind == "ReduceSum" or graph.opset >= 18:
        graph.op(kind, value, graph.integers(axis), keepdims=graph.integer(0, 1))
    else:
        graph.op(kind, value, axes=[axis], keepdims=graph.integer(0, 1))


def compared(graph: Graph) -> None:
    """Add a comparison with a constant, and sometimes a Where or a Cast that uses its result."""
    value = wide(graph)
    other = graph.constant(graph.random.integers(-5, 6, broadcast(graph, value)).astype(value.dtype))
    condition = graph.op(graph.one_of(("Equal", "Greater", "Less", "GreaterOrEqual")), value, other)
    if graph.chance(0.5):
        graph.op("Where", condition, value, other)
    elif graph.chance(0.5):
        graph.op("Cast", condition, to=_CODES[graph.one_of(("int32", "float32"))])


def one_hot(graph: Graph) -> None:
    """Add a OneHot of an input."""
    numbers = graph.input(graph.shape(graph.integer(1, 2)), "int64")
    depth = graph.constant(np.array(graph.integer(2, 9), np.int64))
    values = graph.constant(np.array([0, 1], graph.one_of((np.float32, np.int64))))
    graph.op("OneHot", numbers, depth, values, axis=graph.one_of((-1, 0, 1)), exact=True)


def to_real(graph: Graph) -> None:
    """Add a Cast of integers to floating-point numbers, scaled by 0.01."""
    value = wide(graph)
    real = graph.op("Cast", value, to=_CODES[graph.real])
    graph.op("Mul", real, graph.weight(low=0.01, scale=0.0))


def product(graph: Graph) -> None:
    """Add a product of 8-bit matrices, with or without zero points."""
    kind, other = graph.one_of(("int8", "uint8")), graph.one_of(("int8", "uint8"))
    rows, inner, width = graph.size(), graph.size(), graph.size()
    batch = (graph.one_of((2, 3)),) if graph.chance(0.2) else ()
    left = graph.input((*batch, rows, inner), kind)
    right = graph.constant(_drawn(graph, other, (inner, width)))
    zeros = [graph.constant(_drawn(graph, each, ())) for each in (kind, other)] if graph.chance(0.6) else []
    graph.op("MatMulInteger", left, right, *zeros)


def convolution(graph: Graph) -> None:
    """Add a convolution of 8-bit integers, with or without zero points."""
    channels, filters, extent = graph.one_of((1, 2, 3, 8, 16, 17)), graph.one_of((1, 3, 8, 16)), graph.one_of((1, 2, 3))
    size = (graph.integer(extent, 9), graph.integer(extent, 9))
    image = graph.input((graph.one_of((1, 1, 2)), channels, *size), "uint8")
    kind = graph.one_of(("int8", "uint8"))
    weight = graph.constant(_drawn(graph, kind, (filters, channels, extent, extent)))
    zeros = [graph.constant(_drawn(graph, each, ())) for each in ("uint8", kind)] if graph.chance(0.6) else []
    pads = [graph.integer(0, extent - 1) for _ in range(4)]
    graph.op("ConvInteger", image, weight, *zeros, pads=pads, strides=[graph.one_of((1, 1, 2))] * 2)


def _drawn(graph: Graph, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(kind)
    return np.asarray(graph.random.integers(limits.min, limits.max, shape, endpoint=True)).astype(kind)
