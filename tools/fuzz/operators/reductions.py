"""Reductions, normalisations and sorts along dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.graph import Graph, Value

_EXACT = ("ReduceMax", "ReduceMin")
_ROUNDING = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
# First version of ONNX's operators in which all reductions take their axes as an operand.
_AXES_AS_OPERAND = 18


def reduction(graph: Graph) -> None:
    """Add a reduction over some or all dimensions."""
    value = graph.pick(1, 2, 3, 4)
    kind = graph.one_of((*_EXACT, *_ROUNDING, "ReduceSum", "ReduceMean"))
    axes = sorted({graph.axis(value) % value.rank for _ in range(graph.integer(1, value.rank))})
    if graph.chance(0.3):
        axes = [axis - value.rank for axis in axes]
    attributes: dict[str, Any] = {"keepdims": graph.integer(0, 1), "exact": kind in _EXACT}
    if graph.chance(0.15):
        graph.op(kind, value, **attributes)
    elif graph.opset >= _AXES_AS_OPERAND or kind == "ReduceSum":
        graph.op(kind, value, graph.integers(*axes), **attributes)
    else:
        graph.op(kind, value, axes=axes, **attributes)


def softmax(graph: Graph) -> None:
    """Add a Softmax or LogSoftmax along any dimension."""
    value = graph.pick(1, 2, 3, 4)
    graph.op(graph.one_of(("Softmax", "Softmax", "LogSoftmax")), value, axis=graph.axis(value))


def layer_norm(graph: Graph) -> None:
    """Add a LayerNormalization over the last dimensions."""
    value = graph.pick(2, 3, 4)
    axis = graph.axis(value, first=1)
    shape = value.shape[axis:]
    bias = [graph.weight(*shape)] if graph.chance(0.7) else []
    operands = (graph.weight(*shape, low=0.5), *bias)
    graph.op("LayerNormalization", value, *operands, axis=axis, epsilon=graph.one_of((1e-5, 1e-3)))


def written_layer_norm(graph: Graph) -> None:
    """Add a layer normalisation in single operators."""
    value = graph.pick(2, 3)
    width = value.shape[-1]
    mean = _mean(graph, value)
    centred = graph.op("Sub", value, mean)
    square = graph.op("Pow", centred, graph.weight(low=2.0, scale=0.0))
    deviation = graph.op("Sqrt", graph.op("Add", _mean(graph, square), graph.weight(low=1e-3, scale=0.0)))
    normed = graph.op("Div", centred, deviation)
    graph.op("Add", graph.op("Mul", normed, graph.weight(width)), graph.weight(width))


def _mean(graph: Graph, value: Value) -> Value:
    if graph.opset >= _AXES_AS_OPERAND:
        return graph.op("ReduceMean", value, graph.integers(-1))
    return graph.op("ReduceMean", value, axes=[-1])


def batch_norm(graph: Graph) -> None:
    """Add a BatchNormalization by constant means and variances."""
    value = graph.pick(2, 3, 4, 4)
    channels = value.shape[1]
    numbers = (
        graph.weight(channels, low=0.5),
        graph.weight(channels),
        graph.weight(channels),
        graph.weight(channels, low=0.5),
    )
    graph.op("BatchNormalization", value, *numbers)


def instance_norm(graph: Graph) -> None:
    """Add an InstanceNormalization."""
    value = graph.pick(3, 4)
    channels = value.shape[1]
    graph.op("InstanceNormalization", value, graph.weight(channels), graph.weight(channels), epsilon=1e-2)


def local_response(graph: Graph) -> None:
    """Add an LRN, which normalises by the squares of neighbouring channels."""
    graph.op("LRN", graph.pick(4), size=graph.one_of((1, 3, 5)), alpha=0.1, beta=0.75, bias=1.0)


def running_sum(graph: Graph) -> None:
    """Add a CumSum along one dimension, forwards or backwards."""
    value = graph.pick(1, 2, 3)
    axis = graph.constant(np.array(graph.axis(value), np.int64))
    graph.op("CumSum", value, axis, exclusive=graph.integer(0, 1), reverse=graph.integer(0, 1))


def position_of_extreme(graph: Graph) -> None:
    """Add an ArgMax or ArgMin of an exact value."""
    graph.smooth = False
    value = graph.pick(1, 2, 3, 4, exact=True)
    attributes: dict[str, Any] = {"axis": graph.axis(value), "keepdims": graph.integer(0, 1)}
    if graph.chance(0.2):
        attributes["select_last_index"] = 1
    graph.op(graph.one_of(("ArgMax", "ArgMin")), value, exact=True, **attributes)


def largest(graph: Graph) -> None:
    """Add a TopK of an exact value."""
    graph.smooth = False
    value = graph.pick(1, 2, 3, exact=True)
    axis = graph.axis(value)
    count = graph.integers(graph.integer(1, min(value.shape[axis], 5)))
    graph.ops("TopK", 2, value, count, axis=axis, largest=graph.integer(0, 1), exact=True)
