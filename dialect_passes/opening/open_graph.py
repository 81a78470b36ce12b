"""Opens a network: two imports of a model, for other sizes, become one graph for any size, which a third confirms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import (
    Fusion,
    Layer,
    NetworkValue,
    OpenedTask,
    Task,
    TensorType,
    ValueRef,
    task_key,
)
from sartor.codegen.ir.sizes.dims import Dim
from sartor.codegen.ir.sizes.fit import Fit, SeveralFitError
from sartor.dialect_passes.fuse_layers import Attends, find_fusions
from sartor.dialect_passes.opening.channels_last import windows_of
from sartor.dialect_passes.opening.open_body import open_body, open_type
from sartor.dialect_passes.opening.transposes_apart import transposes_apart
from sartor.dialect_passes.opening.window_sizes import knowing_windows
from sartor.errors import UnsupportedModelError

Weights = Mapping[str, np.ndarray]
Network = tuple[LayerGraph, Weights]
_PAIR = 2


def open_graph(one: Network, other: Network, fit: Fit) -> LayerGraph:
    """The network for any size, with fusions of attention alone, and without childnets.

    Args:
        one: the network with the largest sizes, and its weights, which that for any size has too.
        other: the same with other sizes.
        fit: finds what sizes follow from.

    Raises:
        UnsupportedModelError: if the two differ in more than sizes.
    """
    return _Opening(one, other, fit).graph()


def unconfirmed(opened: LayerGraph, one: Network, small: Network, fit: Fit) -> tuple[str, ...]:
    """Check by a third import that what an opened network takes for constant is so for small sizes as well.

    Args:
        opened: the network for any size, by ``one`` and another import.
        one: as for ``open_graph``.
        small: the network with small sizes.
        fit: of these and the largest ones.

    Returns:
        Names of the layers that the third import does not tell about, as it has no such layers.

    Raises:
        UnsupportedModelError: if a layer computes otherwise with small sizes.
    """
    return tuple(_Opening(one, small, fit).unconfirmed(opened))


class _Opening:
    def __init__(self, one: Network, other: Network, fit: Fit) -> None:
        (one_graph, self._weights), (other_graph, self._twin_weights) = one, other
        self._one, self._other = transposes_apart(one_graph), transposes_apart(other_graph)
        self._fit = fit
        self._tasks: dict[tuple[str, str, tuple[Dim, ...], tuple[int, ...]], Task] = {}
        self._types: dict[ValueRef, TensorType] = {}

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
        inputs = tuple(map(self._value, self._one.inputs, self._other.inputs))
        self._types = {ValueRef(None, index): value.type for index, value in enumerate(inputs)}
        layers = []
        for pair in pairs:
            layers.append(self._layer(*pair))
            results = enumerate(layers[-1].task.results)
            self._types |= {ValueRef(layers[-1].name, index): result for index, result in results}
        outputs = tuple(map(self._value, self._one.outputs, self._other.outputs))
        return LayerGraph(tuple(layers), inputs, outputs, tuple(self._fusions()))

    def unconfirmed(self, opened: LayerGraph) -> Iterator[str]:
        """Names of layers of a network that was opened by another import, which these two do not tell about."""
        theirs, sizes = {layer.name: layer for layer in self._other.layers}, self._fit.twin_sizes
        for value, other in zip(opened.outputs, self._other.outputs, strict=True):
            if value.source is not None and value.source.source is not None and other.constant is not None:
                # What layers compute may be folded where sizes are small.
                yield value.source.source
            else:
                self._check_constant(value, other)
            if value.type.at(sizes) != other.type:
                raise UnsupportedModelError(
                    f"output '{value.name}' cannot have any size: where {_sizes(self._fit)} it is {other.type}, not "
                    f"{value.type.at(sizes)}; give the sizes that occur, as --shape x=1|8,16"
                )
        for layer, opened_layer in zip(self._one.layers, opened.layers, strict=True):
            twin = theirs.get(layer.name)
            is_there = twin is not None and twin.inputs == layer.inputs and len(twin.weights) == len(layer.weights)
            if twin is None or not is_there or not self._confirms(opened_layer, layer, twin):
                yield layer.name

    def _confirms(self, opened_layer: Layer, layer: Layer, twin: Layer) -> bool:
        """Whether a layer, which was opened by another import, is the same by these two; False if they cannot tell.

        Raises:
            UnsupportedModelError: if it is not.
        """
        if not self._folds_alike(layer, twin):
            return False
        ends = self._ends(layer, twin)
        try:
            task = self._opened(layer.task, twin.task, opened_layer.task.inputs, ends)
        except SeveralFitError:
            return False
        except ValueError as error:
            raise _differing(layer, str(error)) from None
        codes = [
            (of_task.inputs, of_task.results, of_task.opened.body if of_task.opened else "")
            for of_task in (opened_layer.task, task)
        ]
        if codes[0] != codes[1]:
            raise _differing(layer, f"it computes otherwise where {_sizes(self._fit)} than where sizes are large")
        return True

    def _folds_alike(self, layer: Layer, twin: Layer) -> bool:
        """Whether weights are the same constants: what is too large to be folded at the largest size, as a mask, may
        not be too large at a small one, where a later step of it is the constant."""
        pairs = (
            (self._weights[name], self._twin_weights[other])
            for name, other in zip(layer.weights, twin.weights, strict=True)
        )
        return all((one.ndim, one.dtype) == (other.ndim, other.dtype) for one, other in pairs)

    def _fusions(self) -> Iterator[Fusion]:
        """What kernels compute together: the products and softmaxes of attention, and patches with what reads them."""
        for one, other in zip(*map(_fusions_of, (self._one, self._other)), strict=False):
            if one.members == other.members:
                yield replace(one, layer=self._layer(one.layer, other.layer))

    def _layer(self, layer: Layer, twin: Layer) -> Layer:
        ends, inputs = self._ends(layer, twin), [self._types[ref] for ref in layer.inputs]
        try:
            return replace(layer, task=self._opened(layer.task, twin.task, inputs, ends))
        except ValueError as error:
            raise _differing(layer, str(error)) from None

    def _opened(self, one: Task, other: Task, inputs: Sequence[TensorType], ends: tuple[int, ...] = ()) -> Task:
        """The task for any size, which is made once; ``inputs`` tell what the sizes of activations follow from, and
        ``ends`` which weights are tables of which the end is read."""
        dims = tuple(dim for value in inputs for dim in value.open_dims)
        key = one.key, other.key, dims, ends
        if key not in self._tasks:
            self._tasks[key] = self._task(one, other, self._fit.knowing(dims), ends)
        return self._tasks[key]

    def _ends(self, layer: Layer, twin: Layer) -> tuple[int, ...]:
        """Positions of the weights that are the end of a table as long as the largest size, as a mask of which earlier
        positions a new one sees. All others are the beginning of one, or the same for all sizes.

        Raises:
            UnsupportedModelError: if one is neither, or there are others for other sizes.
        """
        counts = list[int]()
        if len(layer.weights) != len(twin.weights):
            raise _differing(layer, "it has other weights for other sizes")
        for position, (name, twin_name) in enumerate(zip(layer.weights, twin.weights, strict=True)):
            one, other = self._weights[name], self._twin_weights[twin_name]
            is_end = _is_end(one, other)
            if is_end is None:
                raise _differing(layer, "it has a weight whose values depend on sizes")
            counts += [position] if is_end else []
        return tuple(counts)

    def _task(self, one: Task, other: Task, fit: Fit, ends: tuple[int, ...]) -> Task:
        if one.body == other.body:
            return one
        fit = knowing_windows(one, other, fit)
        inputs = [open_type(*pair, fit) for pair in zip(one.inputs, other.inputs, strict=True)]
        fit = fit.counting(value.dims or value.shape for value in inputs)
        body = open_body(one, other, fit, ends)
        results = [open_type(*pair, fit) for pair in zip(one.results, other.results, strict=True)]
        opened = OpenedTask(fit.counting(result.dims or result.shape for result in results), body, other, ends)
        key = task_key(body, *map(str, fit.symbols))
        return replace(one, key=key, inputs=tuple(inputs), results=tuple(results), opened=opened)

    def _check_constant(self, one: NetworkValue, other: NetworkValue) -> None:
        """Make sure that an output without a layer is the same for both sizes."""
        if one.constant is None or other.constant is None:
            alike = one.constant == other.constant
        else:
            values = self._weights[one.constant], self._twin_weights[other.constant]
            alike = values[0].shape == values[1].shape and _are_equal(*values)
        if not alike:
            raise UnsupportedModelError(
                f"output '{one.name}' is a constant that depends on sizes; compute it from the inputs' shapes outside "
                "the model, or give the sizes that occur, as --shape x=1|8,16"
            )

    def _value(self, one: NetworkValue, other: NetworkValue) -> NetworkValue:
        """An input or output; an output has the sizes of what computes it."""
        self._check_constant(one, other)
        known = () if one.source is None else self._types[one.source].open_dims
        try:
            return replace(one, type=open_type(one.type, other.type, self._fit.knowing(known)))
        except ValueError as error:
            raise UnsupportedModelError(f"'{one.name}' cannot have any size: {error}") from None


def _fusions_of(graph: LayerGraph) -> list[Fusion]:
    """The fusions of a network of known sizes, in the order of their last layers."""
    plain = replace(graph, fusions=(), childnets=())
    attentions = [fusion for fusion in find_fusions(plain, Attends.EITHER).fusions if len(fusion.members) > _PAIR]
    order = {layer.name: index for index, layer in enumerate(graph.layers)}
    return sorted((*attentions, *windows_of(graph)), key=lambda fusion: order[fusion.members[-1]])


def _is_end(one: np.ndarray, other: np.ndarray) -> bool | None:
    """Whether an array is the end of a table, and not its beginning; None if it is neither."""
    if one.ndim != other.ndim or not all(map(int.__ge__, one.shape, other.shape)):
        return None
    if _are_equal(one[tuple(map(slice, other.shape))], other):
        return False
    end = tuple(slice(whole - size, whole) for whole, size in zip(one.shape, other.shape, strict=True))
    return True if _are_equal(one[end], other) else None


def _sizes(fit: Fit) -> str:
    return " and ".join(f"{name} is {size}" for name, size in fit.twin_sizes.items())


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays have the same bytes, NaN included."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _differing(layer: Layer, reason: str) -> UnsupportedModelError:
    nodes = ", ".join(f"'{node}'" for node in layer.nodes) or f"'{layer.name}'"
    return UnsupportedModelError(
        f"node {nodes} cannot be compiled for any size: {reason}; a range that begins or ends higher may do, or give "
        "the sizes that occur, as --shape x=1|8,16"
    )
