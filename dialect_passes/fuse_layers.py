"""Find pairs of layers that one kernel may compute, and replace pairs by chosen fused layers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Fusion, Layer, LayerKind, Task, ValueRef
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, copies
from sartor.codegen.subgraphs.fusion import chain, fuse

# A depthwise convolution does little with what it reads and writes; the convolution after it reads each pixel once.
_PAIRS = frozenset({(LayerKind.DEPTHWISE, LayerKind.CONVOLUTION)})


_EXPONENTIAL = "math.exp"
_MOVING = ("linalg.transpose", "tensor.expand_shape", "tensor.collapse_shape", "tensor.empty", "util.return")
_ATTENTION = (LayerKind.CONTRACTION, LayerKind.FIXED, LayerKind.CONTRACTION)


class Attends(StrEnum):
    """What kernels of attention compute beside its products and softmax.

    Attributes:
        NONE: there are none.
        KEYS: what transposes the keys, or not.
        EITHER: the same, with what transposes the result or without, as kernels refuse some of these.
        ALL: both, wherever a layer does nothing else.
    """

    NONE = "none"
    KEYS = "keys"
    EITHER = "either"
    ALL = "all"


def find_fusions(graph: LayerGraph, attends: Attends = Attends.NONE) -> LayerGraph:
    """The graph with all pairs of layers that may be fused, because nothing else reads the value between them.

    Args:
        graph: without fusions.
        attends: what kernels of attention the target has, whose products and softmax may be fused too.
    """
    layers = {layer.name: layer for layer in graph.layers}
    reads = Counter(ref for layer in graph.layers for ref in layer.inputs)
    reads.update(output.source for output in graph.outputs if output.source is not None)
    cached = functools.cache(fuse)
    fusions: dict[str, Fusion] = {}
    for second in graph.layers:
        for slot, ref in enumerate(second.inputs):
            first = layers.get(ref.source or "")
            if first is None or (first.task.kind, second.task.kind) not in _PAIRS:
                continue
            if reads[ref] > 1 or len(first.task.results) > 1:
                continue
            fusion = pair_of(first, second, slot, cached(first.task, second.task, slot))
            # A plan identifies layers by their names alone.
            if fusion.layer.name not in layers:
                fusions.setdefault(fusion.layer.name, fusion)
    attentions = () if attends is Attends.NONE else _attentions(layers, reads, attends)
    fusions |= {fusion.layer.name: fusion for fusion in attentions if fusion.layer.name not in layers}
    order = {layer.name: index for index, layer in enumerate(graph.layers)}
    return replace(graph, fusions=tuple(sorted(fusions.values(), key=lambda fusion: order[fusion.members[-1]])))


def _attentions(layers: Mapping[str, Layer], reads: Counter[ValueRef], attends: Attends) -> Iterator[Fusion]:
    """Products of a row-wise layer's result, such as a softmax, which reads a product; nothing else reads either.

    Each also with the layer that turns the keys, if there is one that does nothing else, and with one that turns the
    result.
    """
    cached = functools.cache(chain)
    readers = {ref: layer for layer in layers.values() for ref in layer.inputs}
    for last in layers.values():
        for slot, ref in enumerate(last.inputs):
            middle = layers.get(ref.source or "")
            first = layers.get(middle.inputs[0].source or "") if middle and len(middle.inputs) == 1 else None
            if middle is None or first is None or _EXPONENTIAL not in middle.task.body:
                continue
            if max(reads[ref], reads[middle.inputs[0]]) > 1:
                continue
            members, slots = [first, middle, last], [0, slot]
            kinds = tuple(member.task.kind for member in members)
            if kinds != _ATTENTION or any(len(member.task.results) > 1 for member in members):
                continue
            result = ValueRef(last.name, 0)
            behind = readers.get(result) if attends is not Attends.KEYS and reads[result] == 1 else None
            ends = [([*members, behind], [*slots, 0])] if behind is not None and _only_moves(behind.task) else []
            if not ends or attends is Attends.EITHER:
                ends.append((members, slots))
            turned = [*_turned_keys(first, layers, reads)]
            for joined, taken in ends:
                if attends is not Attends.ALL or not turned:
                    task = cached(tuple(member.task for member in joined), tuple(taken))
                    yield _joined(joined, task, (*first.inputs, *_others(last, slot)))
                for place, turn in turned:
                    task = cached(tuple(member.task for member in (turn, *joined)), (place, *taken))
                    inputs = (*turn.inputs, *_others(first, place), *_others(last, slot))
                    yield _joined((turn, *joined), task, inputs)


def _turned_keys(product: Layer, layers: Mapping[str, Layer], reads: Counter[ValueRef]) -> Iterator[tuple[int, Layer]]:
    """Layers that only turn an activation of a product, which alone reads them, and the place of that activation."""
    for place, ref in enumerate(product.inputs):
        turn = layers.get(ref.source or "") if reads[ref] == 1 else None
        if turn is not None and _only_moves(turn.task):
            yield place, turn


def _joined(members: Sequence[Layer], task: Task, inputs: tuple[ValueRef, ...]) -> Fusion:
    layer = Layer(
        name="+".join(member.name for member in members),
        nodes=tuple(dict.fromkeys(node for member in members for node in member.nodes)),
        task=task,
        inputs=inputs,
        weights=tuple(name for member in members for name in member.weights),
    )
    return Fusion(layer, tuple(member.name for member in members))


def _others(layer: Layer, slot: int) -> tuple[ValueRef, ...]:
    """The layer's inputs but one."""
    return tuple(source for index, source in enumerate(layer.inputs) if index != slot)


def _only_moves(task: Task) -> bool:
    """Whether a task transposes and reshapes one activation, and computes nothing."""
    if task.kind is not LayerKind.FIXED or task.weights or len(task.inputs) != 1 or len(task.results) != 1:
        return False
    with shared_context():
        module = ir.Module.parse(task.body)
        ops = [view.operation for view in body_of(module.body.operations[0].operation).operations]
        return all(op.name in _MOVING or copies(op) for op in ops)


def pair_of(first: Layer, second: Layer, slot: int, task: Task) -> Fusion:
    """Two layers as one, the second of which reads the result of the first as its activation ``slot``."""
    return fusion_of((first, second), (slot,), task)


def fusion_of(members: Sequence[Layer], slots: Sequence[int], task: Task) -> Fusion:
    """Layers as one, each of which but the first reads the result of the one before as its activation ``slot``."""
    first, *later = members
    others = [ref for layer, slot in zip(later, slots, strict=True) for ref in _others(layer, slot)]
    return _joined(members, task, (*first.inputs, *others))


def apply_fusions(graph: LayerGraph, names: Collection[str]) -> LayerGraph:
    """The graph with fused layers of these names in place of their members, and no further fusions."""
    chosen = [fusion for fusion in graph.fusions if fusion.layer.name in names]
    inner = {name for fusion in chosen for name in fusion.members[:-1]}
    last = {fusion.members[-1]: fusion.layer for fusion in chosen}

    def moved(ref: ValueRef) -> ValueRef:
        return replace(ref, source=last[ref.source].name) if ref.source in last else ref

    layers = tuple(
        replace(kept, inputs=tuple(map(moved, kept.inputs)))
        for kept in (last.get(layer.name, layer) for layer in graph.layers if layer.name not in inner)
    )
    outputs = tuple(
        replace(output, source=moved(output.source)) if output.source else output for output in graph.outputs
    )
    return LayerGraph(layers, graph.inputs, outputs)
