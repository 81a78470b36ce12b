"""Matrix products and blocks built of them."""

from __future__ import annotations

import math

from tools.fuzz.graph import Graph, Value


def matmul(graph: Graph) -> None:
    """Add a product of a value and a weight; the weight may be batched, a vector or the left operand."""
    value = graph.image(1, 2, 2, 3, 3, 4)
    inner = value.shape[-1]
    width = graph.size()
    scale = 1 / math.sqrt(inner)
    if graph.chance(0.1):
        weight = graph.weight(inner, scale=scale)
    elif value.rank > 2 and graph.chance(0.3):
        batch = [graph.one_of((1, each)) for each in value.shape[:-2]]
        weight = graph.weight(*batch, inner, width, scale=scale)
    elif value.rank >= 2 and graph.chance(0.2):
        rows = value.shape[-2]
        graph.op("MatMul", graph.weight(width, rows, scale=1 / math.sqrt(rows)), value)
        return
    else:
        weight = graph.weight(inner, width, scale=scale)
    result = graph.op("MatMul", value, weight)
    if graph.chance(0.5) and weight.rank > 1:
        result = graph.op("Add", result, graph.weight(weight.shape[-1]))
    if graph.chance(0.4):
        graph.op(graph.one_of(("Relu", "Tanh", "Sigmoid", "Erf")), result)


def product_of_values(graph: Graph) -> None:
    """Add a product of two values; the second is transposed to fit, or is a new input."""
    left = graph.image(2, 3, 4)
    inner = left.shape[-1]
    fit = [graph.one_of((1, each)) if graph.chance(0.2) else each for each in left.shape[:-2]]
    right = graph.input((*fit, graph.size(), inner)) if graph.chance(0.5) else left
    order = [*range(right.rank - 2), right.rank - 1, right.rank - 2]
    moved = graph.op("Transpose", right, perm=order, exact=True)
    _scaled(graph, graph.op("MatMul", left, moved), inner)


def _scaled(graph: Graph, value: Value, terms: int) -> Value:
    """Return a sum of ``terms`` products divided by the square root of ``terms``."""
    return graph.op("Mul", value, graph.weight(low=1 / math.sqrt(terms), scale=0.0))


def gemm(graph: Graph) -> None:
    """Add a Gemm with any of its attributes and an optional addend."""
    value = graph.image(2)
    turned, stored = graph.integer(0, 1), graph.integer(0, 1)
    inner, rows = (value.shape[0], value.shape[1]) if turned else (value.shape[1], value.shape[0])
    width = graph.size()
    weight = graph.weight(*((width, inner) if stored else (inner, width)), scale=1 / math.sqrt(inner))
    attributes: dict[str, float] = {"transA": turned, "transB": stored}
    if graph.chance(0.3):
        attributes |= {"alpha": 0.5, "beta": 1.5}
    shapes = ((width,), (1, width), (rows, 1), (rows, width), (), (1,))
    added = [graph.weight(*graph.one_of(shapes))] if graph.chance(0.7) else []
    graph.op("Gemm", value, weight, *added, **attributes)


def einsum(graph: Graph) -> None:
    """Add a matrix product as an Einsum."""
    value = graph.image(2, 3)
    inner, width = value.shape[-1], graph.size()
    left = "abcd"[: value.rank]
    equation = f"{left},{left[-1]}z->{left[:-1]}z" if graph.chance(0.6) else f"{left},z{left[-1]}->z{left[:-1]}"
    shape = (inner, width) if equation[value.rank + 1] == left[-1] else (width, inner)
    graph.op("Einsum", value, graph.weight(*shape, scale=1 / math.sqrt(inner)), equation=equation)


def attention(graph: Graph) -> None:
    """Add attention with one or more heads, with or without a mask, in the operators that exporters write."""
    length, heads, depth = graph.size(), graph.one_of((1, 2, 3)), graph.one_of((2, 4, 5, 8, 16))
    batch, width = graph.one_of((1, 1, 2, 3)), heads * depth
    value = graph.input((batch, length, width))
    query, key, content = (_heads(graph, value, heads, depth, number == 1) for number in range(3))
    scores = _scaled(graph, graph.op("MatMul", query, key), depth)
    if graph.chance(0.4):
        mask = graph.input((batch, 1, 1, length))
        scores = graph.op("Add", scores, mask)
    weights = graph.op("Softmax", scores, axis=graph.one_of((-1, 3)))
    mixed = graph.op("Transpose", graph.op("MatMul", weights, content), perm=[0, 2, 1, 3])
    joined = graph.op("Reshape", mixed, graph.integers(batch, length, width))
    result = graph.op("MatMul", joined, graph.weight(width, width, scale=1 / math.sqrt(width)))
    if graph.chance(0.6):
        result = graph.op("Add", result, value)
        graph.op("LayerNormalization", result, graph.weight(width), graph.weight(width), axis=-1)


def _heads(graph: Graph, value: Value, heads: int, depth: int, turned: bool) -> Value:
    """Return a projection split into heads; ``turned`` moves the depth before the length."""
    batch, length, width = value.shape
    projected = graph.op("MatMul", value, graph.weight(width, width, scale=1 / math.sqrt(width)))
    if graph.chance(0.5):
        projected = graph.op("Add", projected, graph.weight(width))
    split = graph.op("Reshape", projected, graph.integers(batch, length, heads, depth))
    return graph.op("Transpose", split, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])


def perceptron(graph: Graph) -> None:
    """Add two products with Gelu in single operators between them, and a residual addition."""
    value = graph.image(2, 3)
    width, inner = value.shape[-1], graph.size()
    first = graph.op("MatMul", value, graph.weight(width, inner, scale=1 / math.sqrt(width)))
    first = graph.op("Add", first, graph.weight(inner))
    erf = graph.op("Erf", graph.op("Div", first, graph.weight(low=math.sqrt(2), scale=0.0)))
    gelu = graph.op("Mul", first, graph.op("Add", erf, graph.weight(low=1.0, scale=0.0)))
    second = graph.op("MatMul", gelu, graph.weight(inner, width, scale=1 / math.sqrt(inner)))
    graph.op("Add", second, value)
