"""Turns images of networks of open sizes to channels last, where convolutions are products of any number of rows.

What a window reads is gathered for each place of the result, so that a convolution multiplies rows by a matrix, as the
kernels for open sizes do: by 1x1 filters without a stride the image itself is these rows. Other ops over images follow,
as long as they allow any layout; in between a layer of its own transposes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Fusion, Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.layouts import CHANNELS_LAST, IMAGE_RANK, image_layout
from sartor.codegen.ir.packing import Packing
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, moves
from sartor.codegen.mlir.rewriting.convert import Converted, convert_images
from sartor.codegen.mlir.snippet import inline
from sartor.codegen.subgraphs.fusion import chain, fuse, task_of
from sartor.dialect_passes.fuse_layers import fusion_of, pair_of
from sartor.dialect_passes.opening.patches import padding_apart, patched
from sartor.dialect_passes.opening.transposes_apart import transpose_task

Weights = Mapping[str, np.ndarray]
Network = tuple[LayerGraph, Weights]

_LAST, _PLAIN = f".{CHANNELS_LAST}", ".nchw"
_PATCHES = ".patches"
_FEW_CHANNELS = 4
_JOIN = "tensor.concat"
_WINDOWED = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE, LayerKind.POOLING)
# IREE 3.13 rejects a depthwise convolution of open size, but not one of patches: "expected no unbounded stack
# allocations".
_FILTERED = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE)
# A product or a recurrence over tensors of four dimensions is no op over images.
_NEVER = (LayerKind.CONTRACTION, LayerKind.RECURRENCE)


def channels_last(network: Network) -> Network:
    """The network with images in NHWC behind convolutions and poolings, and the weights that these need."""
    graph, weights = network
    if not any(layer.task.kind in _WINDOWED for layer in graph.layers):
        return network
    turning = _Turning(graph, weights)
    for layer in graph.layers:
        turning.take(layer)
    outputs = tuple(map(turning.output, graph.outputs))
    return replace(graph, layers=tuple(turning.layers), outputs=outputs), {**weights, **turning.weights}


def windows_of(graph: LayerGraph) -> Iterator[Fusion]:
    """The windows of a network with channels last, each with the layer that gathers its patches or pads its image, and
    those that a product alone reads, which are no product themselves, also with that; so with images that are joined.
    """
    layers = {layer.name: layer for layer in graph.layers}
    reads = Counter(ref for layer in graph.layers for ref in layer.inputs)
    reads.update(output.source for output in graph.outputs if output.source is not None)
    windows: dict[ValueRef, tuple[Layer, Layer, int]] = {}
    for layer in graph.layers:
        for slot, ref in enumerate(layer.inputs):
            before = layers.get(ref.source or "")
            if before is None or reads[ref] > 1 or len(before.task.results) > 1:
                continue
            if _PATCHES in before.name:
                yield pair_of(before, layer, slot, fuse(before.task, layer.task, slot))
                windows[ValueRef(layer.name, 0)] = before, layer, slot
                turns = layers.get(before.inputs[0].source or "")
                if turns is not None and _turns_few(turns) and reads[before.inputs[0]] == 1 and _multiplies(layer.task):
                    task = chain((turns.task, before.task, layer.task), (0, slot))
                    yield fusion_of((turns, before, layer), (0, slot), task)
            elif ref in windows and _multiplies(layer.task) and before.task.kind is LayerKind.FIXED:
                gathers, window, place = windows[ref]
                task = chain((gathers.task, window.task, layer.task), (place, slot))
                yield fusion_of((gathers, window, layer), (place, slot), task)
            elif _JOIN in before.task.body and _multiplies(layer.task):
                yield pair_of(before, layer, slot, fuse(before.task, layer.task, slot))


def _turns_few(layer: Layer) -> bool:
    """Whether a layer turns an image of few channels, as a network's input, to channels last."""
    return _LAST in layer.name and not layer.nodes and layer.task.results[0].shape[-1] <= _FEW_CHANNELS


def _multiplies(task: Task) -> bool:
    """Whether a task is a product of images as rows."""
    return task.kind is LayerKind.CONTRACTION and bool(task.weights)


@dataclass(frozen=True)
class _Turned:
    """A layer over images in NHWC.

    Attributes:
        gathering: the activation in whose place patches or a padded image is read, and the task that makes these; None
            for none.
        task: what follows.
        packings: of its weights.
    """

    gathering: tuple[int, Task] | None
    task: Task
    packings: tuple[Packing, ...]


class _Turning:
    """Collects the layers of the new network, with the references of each value in both layouts."""

    def __init__(self, graph: LayerGraph, weights: Weights) -> None:
        self.layers: list[Layer] = []
        self.weights: dict[str, np.ndarray] = {}
        self._names = {layer.name for layer in graph.layers} | weights.keys()
        self._stored = weights
        self._packed: dict[tuple[str, Packing], str] = {}
        self._turned: dict[str, _Turned | None] = {}
        self._last: dict[ValueRef, ValueRef] = {}
        self._plain: dict[ValueRef, ValueRef] = {}

    def take(self, layer: Layer) -> None:
        """Add a layer, in the layout that suits it."""
        turned = self._turn(layer.task) if self._wants(layer) else None
        if turned is None:
            inputs = tuple(map(self._in_plain, layer.inputs, layer.task.inputs))
            self.layers.append(replace(layer, inputs=inputs))
            return
        inputs = tuple(map(self._in_last, layer.inputs, layer.task.inputs))
        name = self._fresh(f"{layer.name}{_LAST}")
        if turned.gathering is not None:
            slot, task = turned.gathering
            gathering = self._fresh(f"{layer.name}{_PATCHES}")
            self.layers.append(Layer(gathering, layer.nodes, task, (inputs[slot],), ()))
            inputs = (*inputs[:slot], ValueRef(gathering, 0), *inputs[slot + 1 :])
        weights = tuple(map(self._as_read, layer.weights, turned.packings))
        self.layers.append(Layer(name, layer.nodes, turned.task, inputs, weights))
        for index, result in enumerate(layer.task.results):
            places = self._last if _is_image(result) else self._plain
            places[ValueRef(layer.name, index)] = ValueRef(name, index)

    def output(self, value: NetworkValue) -> NetworkValue:
        """An output of the network, in ONNX's layout."""
        return value if value.source is None else replace(value, source=self._in_plain(value.source, value.type))

    def _wants(self, layer: Layer) -> bool:
        """Whether a layer computes windows of images, or reads an image that is in NHWC."""
        if layer.task.kind in _NEVER:
            return False
        return layer.task.kind in _WINDOWED or any(self._is_last(ref) for ref in layer.inputs)

    def _is_last(self, ref: ValueRef) -> bool:
        return ref in self._last and ref not in self._plain

    def _turn(self, task: Task) -> _Turned | None:
        """A task over images in NHWC; None if it depends on ONNX's layout."""
        if task.key not in self._turned:
            converted = convert_images(task, CHANNELS_LAST)
            self._turned[task.key] = _turned(converted) if isinstance(converted, Converted) else None
        return self._turned[task.key]

    def _in_last(self, ref: ValueRef, tensor: TensorType) -> ValueRef:
        if not _is_image(tensor):
            return self._plain.get(ref, ref)
        if ref not in self._last:
            turn = transpose_task(image_layout(CHANNELS_LAST).order, tensor)
            self._last[ref] = self._transposed(ref, self._plain.get(ref, ref), turn, _LAST)
            self._plain.setdefault(ref, ref)
        return self._last[ref]

    def _in_plain(self, ref: ValueRef, tensor: TensorType) -> ValueRef:
        if self._is_last(ref):
            layout = image_layout(CHANNELS_LAST)
            back = [layout.order.index(axis) for axis in range(IMAGE_RANK)]
            turn = transpose_task(back, layout.physical(TensorType(tensor.shape, tensor.dtype)))
            self._plain[ref] = self._transposed(ref, self._last[ref], turn, _PLAIN)
        return self._plain.get(ref, ref)

    def _transposed(self, ref: ValueRef, source: ValueRef, turn: Task, suffix: str) -> ValueRef:
        name = self._fresh(f"{ref.source or 'input'}.{ref.index}{suffix}")
        self.layers.append(Layer(name, (), turn, (source,), ()))
        return ValueRef(name, 0)

    def _as_read(self, name: str, packing: Packing) -> str:
        """The name of a weight as a task reads it; tasks may read one in several ways."""
        if not packing.steps:
            return name
        if (name, packing) not in self._packed:
            packed = self._packed[name, packing] = self._fresh(f"{name}{_LAST}")
            self.weights[packed] = packing.apply(self._stored[name])
        return self._packed[name, packing]

    def _fresh(self, hint: str) -> str:
        """``hint``, or with the first number by which it names no other layer or weight."""
        numbered = (f"{hint}_{number}" for number in itertools.count(1))
        name = next(
            name_offered for name_offered in itertools.chain([hint], numbered) if name_offered not in self._names
        )
        self._names.add(name)
        return name


def _turned(converted: Converted) -> _Turned:
    task = converted.task
    _name_fills(converted.function)
    before = patched(converted) if task.kind in _FILTERED else None
    inputs, results = (
        tuple(image_layout(CHANNELS_LAST).physical(tensor) if _is_image(tensor) else tensor for tensor in tensors)
        for tensors in (task.inputs, task.results)
    )
    weights = tuple(packing.type_of(weight) for weight, packing in zip(task.weights, converted.packings, strict=True))
    is_product = before is not None and task.kind is LayerKind.CONVOLUTION
    kind = LayerKind.CONTRACTION if is_product else LayerKind.FIXED
    before = before or padding_apart(converted)
    gathering = None
    if before is not None and before.task is not None:
        gathering = before.slot, before.task
        inputs = (*inputs[: before.slot], before.task.results[0], *inputs[before.slot + 1 :])
    text = str(converted.function.get_asm(use_local_scope=True))
    return _Turned(gathering, task_of(kind, text, inputs, weights, results), converted.packings)


def _is_image(tensor: TensorType) -> bool:
    return len(tensor.shape) == IMAGE_RANK


def _name_fills(function: ir.Operation) -> None:
    """Make fills of the generic ops that fill a tensor with a number, in place.

    IREE 3.13 rejects a pooling of open width behind a generic one: "write affecting operations on global resources are
    restricted to workgroup distributed contexts".
    """
    with function.context, ir.Location.unknown(function.context):
        for op in [view.operation for view in body_of(function).operations]:
            if not moves(op):
                continue
            number, tensor = op.operands
            if isinstance(number.type, ir.RankedTensorType):
                continue
            text = f"""util.func private @fill(%number: {number.type}, %tensor: {tensor.type}) -> {tensor.type} {{
  %filled = linalg.fill ins(%number : {number.type}) outs(%tensor : {tensor.type}) -> {tensor.type}
  util.return %filled : {tensor.type}
}}"""
            op.results[0].replace_all_uses_with(inline(text, [number, tensor], ir.InsertionPoint(op))[0])
            op.erase()
