"""Opens a network: two imports of a model, for other sizes, become one graph for any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Fusion, Layer, NetworkValue, OpenedTask, Task, TensorType, task_key
from sartor.codegen.ir.sizes.fit import Fit
from sartor.dialect_passes.fuse_layers import find_fusions
from sartor.dialect_passes.opening.open_body import open_body, open_type
from sartor.errors import UnsupportedModelError

# A product, a softmax and a product.
_ATTENTION = 3

Weights = Mapping[str, np.ndarray]


def open_graph(one: tuple[LayerGraph, Weights], other: tuple[LayerGraph, Weights], fit: Fit) -> LayerGraph:
    """The network for any size, with fusions of attention alone, and without childnets.

    Args:
        one: the network with the largest sizes, and its weights, which that for any size has too.
        other: the same with other sizes.
        fit: finds what sizes follow from.

    Raises:
        UnsupportedModelError: if the two differ in more than sizes.
    """
    return _Opening(one, other, fit).graph()


class _Opening:
    def __init__(self, one: tuple[LayerGraph, Weights], other: tuple[LayerGraph, Weights], fit: Fit) -> None:
        (self._one, self._weights), (self._other, self._twin_weights) = one, other
        self._fit = fit
        self._tasks: dict[tuple[str, str], Task] = {}

    def graph(self) -> LayerGraph:
        """The network."""
        pairs = [*zip(self._one.layers, self._other.layers, strict=False)]
        for layer, twin in pairs:
            if (layer.name, layer.inputs) != (twin.name, twin.inputs):
                raise _differing(layer, f"it is '{twin.name}' for other sizes")
        if len(self._one.layers) != len(self._other.layers):
            raise UnsupportedModelError(
                f"the network has {len(self._one.layers)} layers for one size and {len(self._other.layers)} for "
                "another, so that no one plan serves all; give the sizes that occur, as --shape x=1|8,16"
            )
        layers = tuple(self._layer(*pair) for pair in pairs)
        inputs, outputs = (
            tuple(map(self._value, *ends))
            for ends in ((self._one.inputs, self._other.inputs), (self._one.outputs, self._other.outputs))
        )
        return LayerGraph(layers, inputs, outputs, tuple(self._fusions()))

    def _fusions(self) -> Iterator[Fusion]:
        """The products and softmaxes of attention, which a kernel computes together."""
        pairs = (
            find_fusions(replace(each, fusions=(), childnets=()), attends=True) for each in (self._one, self._other)
        )
        for one, other in zip(*(each.fusions for each in pairs), strict=False):
            if one.members == other.members and len(one.members) == _ATTENTION:
                yield replace(one, layer=self._layer(one.layer, other.layer))

    def _layer(self, layer: Layer, twin: Layer) -> Layer:
        for name, other in zip(layer.weights, twin.weights, strict=True):
            self._check_weight(layer, self._weights[name], self._twin_weights[other])
        key = layer.task.key, twin.task.key
        if key not in self._tasks:
            try:
                self._tasks[key] = self._task(layer.task, twin.task)
            except ValueError as error:
                raise _differing(layer, str(error)) from None
        return replace(layer, task=self._tasks[key])

    def _check_weight(self, layer: Layer, one: np.ndarray, other: np.ndarray) -> None:
        """Check that a weight is the same for all sizes, or the beginning of a table as long as the largest one."""
        begins = one.ndim == other.ndim and all(map(int.__ge__, one.shape, other.shape))
        if not begins or not _are_equal(one[tuple(map(slice, other.shape))], other):
            raise _differing(layer, "it has a weight whose values depend on sizes")

    def _task(self, one: Task, other: Task) -> Task:
        if one.body == other.body:
            return one
        body = open_body(one, other, self._fit)
        inputs, results = (
            tuple(open_type(first, second, self._fit) for first, second in zip(*types, strict=True))
            for types in ((one.inputs, other.inputs), (one.results, other.results))
        )
        opened = OpenedTask(self._fit, body, other)
        key = task_key(body, *map(str, self._fit.symbols))
        return replace(one, key=key, inputs=inputs, results=results, opened=opened)

    def _value(self, one: NetworkValue, other: NetworkValue) -> NetworkValue:
        if one.constant is not None and one.type != other.type:
            raise UnsupportedModelError(f"output '{one.name}' is a constant that depends on sizes")
        return replace(one, type=self._open(one.type, other.type, one.name))

    def _open(self, one: TensorType, other: TensorType, name: str) -> TensorType:
        try:
            return open_type(one, other, self._fit)
        except ValueError as error:
            raise UnsupportedModelError(f"'{name}' cannot have any size: {error}") from None


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays have the same bytes, NaN included."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _differing(layer: Layer, reason: str) -> UnsupportedModelError:
    nodes = ", ".join(f"'{each}'" for each in layer.nodes) or f"'{layer.name}'"
    return UnsupportedModelError(
        f"node {nodes} cannot be compiled for any size: {reason}; give the sizes that occur, as --shape x=1|8,16"
    )
