"""Layers over signals, [batch, channels, length], and over sequences, [steps, batch, features]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.networks.builder import Tensor
from benchmarks.networks.distribution import Distribution
from benchmarks.networks.graph import Graph

_GATES = {"LSTM": 4, "GRU": 3}
# States are bounded by one; the recurrence is weak enough that a difference of the input fades.
_STATE_STD = 0.4
_RECURRENCE_GAIN = 0.6


def signal(graph: Graph, *shape: int, name: str = "input") -> Tensor:
    """Declare an input `[batch, *shape]`, whose values are taken to be N(0, 1)."""
    full = (graph.batch, *shape)
    return Tensor(graph, graph.input(name, full), full, Distribution.normal(graph.rng(name)))


def convolution(x: Tensor, name: str, channels: int, kernel: int, stride: int) -> Tensor:
    """Append a convolution of a signal without a bias, as a short-time Fourier transform is written."""
    graph, (batch, inputs, length) = x.graph, x.shape
    std = 1 / math.sqrt(inputs * kernel * x.distribution.power)
    weight = graph.parameter(f"{name}.weight", graph.draw(f"{name}.weight", (channels, inputs, kernel), std))
    shape = (batch, channels, (length - kernel) // stride + 1)
    drawn = Distribution.normal(graph.rng(f"{name}.distribution"))
    settings: dict[str, Any] = {"kernel_shape": [kernel], "strides": [stride]}
    return x.apply("Conv", name, weight, shape=shape, distribution=drawn, **settings)


def recurrent(
    x: Tensor, name: str, operator: str, hidden: int, *, bidirectional: bool = False, states: tuple[Tensor, ...] = ()
) -> tuple[Tensor, ...]:
    """Append an LSTM or a GRU in PyTorch's form.

    Returns:
        The states of all steps, `[steps, batch, directions * hidden]`; with initial `states`, `[1, batch, hidden]`, the
        last ones too.
    """
    graph, (steps, batch, inputs), directions = x.graph, x.shape, 2 if bidirectional else 1
    with graph.scope(name):
        operands = [x.name, *_weights(x, operator, inputs, hidden, directions)]
        operands += ["", *(state.name for state in states)] if states else []
        shapes = [(steps, directions, batch, hidden), *((directions, batch, hidden) for _ in states)]
        settings: dict[str, Any] = {"direction": "bidirectional" if bidirectional else "forward", "hidden_size": hidden}
        if operator == "GRU":
            settings["linear_before_reset"] = 1
        made = graph.node(operator, "cell", operands, shapes, **settings)
        drawn = Distribution.normal(graph.rng("distribution"), std=_STATE_STD)
        found, *last = (Tensor(graph, each, shape, drawn) for each, shape in zip(made, shapes, strict=True))
        shape = (steps, batch, directions * hidden)
        return found.transpose("joined", 0, 2, 1, 3).reshape("flat", *shape, distribution=drawn), *last


def _weights(x: Tensor, operator: str, inputs: int, hidden: int, directions: int) -> list[str]:
    graph, rows = x.graph, _GATES[operator] * hidden
    drawn = {
        "weight": ((directions, rows, inputs), 1 / math.sqrt(inputs * x.distribution.power)),
        "recurrence": ((directions, rows, hidden), _RECURRENCE_GAIN / (_STATE_STD * math.sqrt(hidden))),
        "bias": ((directions, 2 * rows), 0.2),
    }
    return [graph.parameter(key, graph.draw(key, shape, std)) for key, (shape, std) in drawn.items()]


def squeezed(x: Tensor, name: str, axis: int) -> Tensor:
    """Remove a dimension of one element."""
    shape = tuple(size for index, size in enumerate(x.shape) if index != axis)
    return x.apply("Squeeze", name, x.constant(f"{name}.axes", [axis], np.int64), shape=shape)


def raised(x: Tensor, name: str, axis: int) -> Tensor:
    """Insert a dimension of one element."""
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return x.apply("Unsqueeze", name, x.constant(f"{name}.axes", [axis], np.int64), shape=shape)
