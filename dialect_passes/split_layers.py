"""Give childnets to layers: graphs of layers that compute the same, and are tuned like others.

There are three kinds. A convolution in groups is split into parts of the image, a dense convolution of each part, and a
concatenation. If there are no kernels for the parts, or none for a large convolution without groups, it becomes a
gather of patches and a matrix product. Where that is asked for, a convolution of stride 1 is computed by Winograd's
method in three layers. Children are layers: they may be fused, and have childnets in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.analysis.winograd_tiles import applicable, promising_tiles
from sartor.codegen.ir.graph import Childnet, LayerGraph
from sartor.codegen.ir.layer import Layer, NetworkValue, Task, ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.descriptor import CHILDNET, write_descriptor
from sartor.codegen.ir.variants.routine import Rejected, dtype_of
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.subgraphs.grouped import Sliding, sliding_of
from sartor.codegen.subgraphs.im2col_children import patches_task, product_task
from sartor.codegen.subgraphs.part_children import (
    dense_filters,
    groups_of_a_part,
    join_task,
    narrow_tail,
    part_task,
    parts_task,
)
from sartor.codegen.subgraphs.winograd_children import (
    TiledConvolution,
    decode_task,
    encode_task,
    encoded_filters,
    method_error,
)
from sartor.codegen.subgraphs.winograd_children import product_task as encoded_product_task
from sartor.dialect_passes.fuse_layers import apply_fusions, find_fusions

PartsOf = tuple[tuple[ValueRef, ValueRef], ...]
"""Pairs as in ``Childnet.parts_of``."""

IsAsked = Callable[[str, Childnet], bool]
"""Whether a childnet is wanted that a layer of this name has only on request."""

# With fewer operations a layer in groups takes no longer than its children take to start.
_FEWEST_OPERATIONS = 200_000
# Smaller layers without groups have enough routines; a product gains only with many operations.
_MANY_OPERATIONS = 50_000_000
# Channels of a part, where the length of vectors is unknown.
_FEWEST_CHANNELS = 16
# Parts are layers, and a network should not have thousands of them.
_MOST_PARTS = 64
_MOST_TILES = 2


def find_childnets(
    graph: LayerGraph, weights: Mapping[str, np.ndarray], target: Target, is_asked: IsAsked | None = None
) -> tuple[LayerGraph, dict[str, np.ndarray]]:
    """The graph with childnets for layers that may gain from them, and the new weights of these.

    Args:
        graph: layers with their fusions.
        weights: arrays by name.
        target: what layers are compiled for; layers that have kernels there need no childnets.
        is_asked: decides which childnets by Winograd's method there are; None for none. Kernels that keep encoded
            numbers in the cache are nearly always faster, and encoded filters are several times as large, so nobody has
            them unasked.
    """
    splitter = _Splitter(weights, target, is_asked)
    return splitter.split(graph), splitter.made


@dataclass
class _Splitter:
    """Splits layers, and collects the new weights.

    Attributes:
        weights: weights of the network.
        target: what layers are compiled for.
        is_asked: decides which childnets by Winograd's method there are; None for none.
        made: new weights, by name.
    """

    weights: Mapping[str, np.ndarray]
    target: Target
    is_asked: IsAsked | None
    made: dict[str, np.ndarray] = field(default_factory=dict)

    def split(self, graph: LayerGraph) -> LayerGraph:
        """The graph with childnets, whose layers may have childnets too."""
        names = {layer.name for layer in graph.all_layers()}
        activations = {layer.task.key: len(layer.task.inputs) for layer in graph.all_layers()}
        childnets = []
        for layer in graph.layers:
            for childnet in (*self._childnets(layer), *self._by_winograd(layer)):
                tasks = [child.task for child in childnet.graph.layers]
                # Code does not tell which of its arguments are weights, and a key may be that of the code alone.
                is_other = any(activations.get(task.key, len(task.inputs)) != len(task.inputs) for task in tasks)
                # A plan identifies layers by their names alone.
                if not is_other and not names & {child.name for child in childnet.graph.layers}:
                    inner = self.split(find_fusions(childnet.graph))
                    childnets.append(replace(childnet, graph=inner))
                    names.update(child.name for child in inner.all_layers())
        return replace(graph, childnets=tuple(childnets))

    def _childnets(self, layer: Layer) -> Iterator[Childnet]:
        sliding, operations = sliding_of(layer.task), operation_count(layer.task)
        if sliding is None:
            return
        machine = kernel_machine(layer.task, self.target)
        kernels = isinstance(machine, Machine)
        if sliding.groups == 1 and (kernels or sliding.is_pointwise or operations < _MANY_OPERATIONS):
            return
        if operations < _FEWEST_OPERATIONS:
            return
        lanes = machine.lanes if isinstance(machine, Machine) else _FEWEST_CHANNELS
        together = groups_of_a_part(sliding, lanes)
        parts = sliding.groups // together if together else None
        if parts is not None and parts <= _MOST_PARTS:
            yield self._parts(layer, sliding, parts)
        if sliding.image.shape[0] == 1 and not (kernels and parts):
            yield self._patches(layer, sliding)

    def _patches(self, layer: Layer, sliding: Sliding) -> Childnet:
        """A childnet of a gather of patches and a product with the filters."""
        patches = _child(layer, "patches", patches_task(sliding), (ValueRef(None, sliding.activation),))
        others = tuple(ValueRef(None, index) for index in sliding.tail_inputs)
        product = _child(
            layer,
            "product",
            product_task(sliding),
            (ValueRef(patches.name, 0), *others),
            (*_convolved(layer, sliding), *_followed(layer, sliding)),
        )
        return self._childnet(layer, "patches", (patches, product), _moved(patches, sliding))

    def _parts(self, layer: Layer, sliding: Sliding, parts: int) -> Childnet:
        """A childnet that splits the image into parts, convolves each densely, and concatenates the results."""
        split = _child(layer, "split", parts_task(sliding, parts), (ValueRef(None, sliding.activation),))
        task, weights = part_task(sliding, parts), self._weights_of_parts(layer, sliding, parts)
        convolved = [
            _child(layer, f"part{index}", task, (ValueRef(split.name, index),), weights[index])
            for index in range(parts)
        ]
        join = join_task(sliding, parts)
        tail = len(join.inputs) > parts or bool(join.weights)
        others = tuple(ValueRef(None, index) for index in sliding.tail_inputs) if tail else ()
        refs = (*(ValueRef(layer_of_part.name, 0) for layer_of_part in convolved), *others)
        joined = _child(layer, "join", join, refs, _followed(layer, sliding) if tail else ())
        parts_of = _moved(split, sliding)
        if sliding.tail is None or narrow_tail(sliding, parts) is not None:
            parts_of += tuple((ValueRef(layer_of_part.name, 0), ValueRef(layer.name, 0)) for layer_of_part in convolved)
        return self._childnet(layer, f"parts{{parts={parts}}}", (split, *convolved, joined), parts_of)

    def _by_winograd(self, layer: Layer) -> Iterator[Childnet]:
        """The childnets by Winograd's method that are asked for, one for each promising size of tiles."""
        if self.is_asked is None:
            return
        convolution, sliding = applicable(layer.task), sliding_of(layer.task)
        if isinstance(convolution, Rejected) or sliding is None:
            return
        tiles = promising_tiles(convolution)
        for tile in () if isinstance(tiles, Rejected) else tiles[:_MOST_TILES]:
            tiled = TiledConvolution(sliding, (tile.height, tile.width))
            net = self._winograd(layer, tiled)
            if self.is_asked(layer.name, net):
                name, filters = net.graph.layers[1].weights[0], self.weights[layer.weights[sliding.weight]]
                self.made[name] = encoded_filters(tiled, filters)
                yield net

    def _winograd(self, layer: Layer, tiled: TiledConvolution) -> Childnet:
        """A childnet that encodes tiles, multiplies them by encoded filters, and decodes the products."""
        sliding, (height, width) = tiled.sliding, tiled.tile
        size = f"{height}x{width}"
        encode = _child(layer, f"encode{size}", encode_task(tiled), (ValueRef(None, sliding.activation),))
        filters, *bias = _convolved(layer, sliding)
        product = _child(
            *(layer, f"product{size}", encoded_product_task(tiled), (ValueRef(encode.name, 0),)),
            weights=(f"{filters}/winograd{size}",),
        )
        others = tuple(ValueRef(None, index) for index in sliding.tail_inputs)
        decode = _child(
            *(layer, f"decode{size}", decode_task(tiled), (ValueRef(product.name, 0), *others)),
            weights=(*bias, *_followed(layer, sliding)),
        )
        net = self._childnet(layer, f"winograd{{tile={height},{width}}}", (encode, product, decode), ())
        return replace(net, error=method_error(tiled), may_round=False)

    def _weights_of_parts(self, layer: Layer, sliding: Sliding, parts: int) -> list[tuple[str, ...]]:
        """Names of the weights of each part; the weights are added to ``made``."""
        names = _convolved(layer, sliding)
        arrays = [dense_filters(self.weights[names[0]], parts)]
        arrays += [np.split(self.weights[name], parts) for name in names[1:]]
        weights_of_parts = []
        for index in range(parts):
            own = tuple(f"{name}/{parts}.{index}" for name in names)
            self.made |= {name: several[index] for name, several in zip(own, arrays, strict=True)}
            weights_of_parts.append(own)
        return weights_of_parts

    def _childnet(self, layer: Layer, method: str, layers: tuple[Layer, ...], parts_of: PartsOf) -> Childnet:
        inputs = tuple(
            NetworkValue(f"{layer.name}:{index}", tensor, tensor.numpy_dtype.name)
            for index, tensor in enumerate(layer.task.inputs)
        )
        (result,) = layer.task.results
        last = ValueRef(layers[-1].name, 0)
        output = NetworkValue(layer.name, result, result.numpy_dtype.name, last)
        descriptor = write_descriptor(self.target.device, dtype_of(layer.task), CHILDNET, method, {})
        graph = LayerGraph(layers, inputs, (output,))
        return Childnet(layer.name, descriptor, graph, (*parts_of, (last, ValueRef(layer.name, 0))))


def _child(layer: Layer, part: str, task: Task, inputs: tuple[ValueRef, ...], weights: tuple[str, ...] = ()) -> Layer:
    return Layer(f"{layer.name}/{part}", layer.nodes, task, inputs, weights)


def _moved(child: Layer, sliding: Sliding) -> PartsOf:
    """Pairs for a child that only moves elements of the image. It may add zeros, which are in every range."""
    image = ValueRef(None, sliding.activation)
    return tuple((ValueRef(child.name, index), image) for index in range(len(child.task.results)))


def _convolved(layer: Layer, sliding: Sliding) -> tuple[str, ...]:
    """Names of the filter and the bias."""
    indices = (sliding.weight, *([] if sliding.bias is None else [sliding.bias]))
    return tuple(layer.weights[index] for index in indices)


def _followed(layer: Layer, sliding: Sliding) -> tuple[str, ...]:
    """Names of the weights of the tail."""
    return tuple(layer.weights[index] for index in sliding.tail_weights)


def apply_choices(graph: LayerGraph, names: Collection[str]) -> LayerGraph:
    """The graph that contains the layers of these names: fused layers replace their members, children their layer."""
    nets = {
        childnet.layer: apply_choices(childnet.graph, names)
        for childnet in graph.childnets
        if any(layer.name in names for layer in childnet.graph.all_layers())
    }
    return apply_childnets(apply_fusions(graph, names), nets)


def apply_childnets(graph: LayerGraph, nets: Mapping[str, LayerGraph]) -> LayerGraph:
    """The graph in which the layers of ``nets`` replace the layer of that name."""
    results = {name: net.outputs[0].source for name, net in nets.items()}

    def moved(ref: ValueRef) -> ValueRef:
        return results.get(ref.source or "") or ref

    layers: list[Layer] = []
    for layer in graph.layers:
        given = tuple(map(moved, layer.inputs))
        if layer.name not in nets:
            layers.append(replace(layer, inputs=given))
            continue
        for child in nets[layer.name].layers:
            inputs = tuple(given[ref.index] if ref.source is None else ref for ref in child.inputs)
            layers.append(replace(child, inputs=inputs))
    outputs = tuple(
        replace(output, source=moved(output.source)) if output.source else output for output in graph.outputs
    )
    return LayerGraph(tuple(layers), graph.inputs, outputs)
