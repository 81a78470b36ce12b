"""Find pairs of layers that one kernel may compute, and replace pairs by chosen fused layers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Fusion, Layer, LayerKind, Task, ValueRef
from sartor.codegen.subgraphs.fusion import fuse

# A depthwise convolution does little with what it reads and writes; the convolution after it reads each pixel once.
_PAIRS = frozenset({(LayerKind.DEPTHWISE, LayerKind.CONVOLUTION)})


def find_fusions(graph: LayerGraph) -> LayerGraph:
    """The graph with all pairs of layers that may be fused, because nothing else reads the value between them."""
    layers = {layer.name: layer for layer in graph.layers}
    reads = Counter(ref for layer in graph.layers for ref in layer.inputs)
    reads.update(each.source for each in graph.outputs if each.source is not None)
    cached = functools.cache(fuse)
    found: dict[str, Fusion] = {}
    for second in graph.layers:
        for slot, ref in enumerate(second.inputs):
            first = layers.get(ref.source or "")
            if first is None or (first.task.kind, second.task.kind) not in _PAIRS:
                continue
            if reads[ref] > 1 or len(first.task.results) > 1:
                continue
            fusion = _fusion(first, second, slot, cached(first.task, second.task, slot))
            # A plan identifies layers by their names alone.
            if fusion.layer.name not in layers:
                found.setdefault(fusion.layer.name, fusion)
    return replace(graph, fusions=tuple(found.values()))


def _fusion(first: Layer, second: Layer, slot: int, task: Task) -> Fusion:
    others = tuple(ref for index, ref in enumerate(second.inputs) if index != slot)
    layer = Layer(
        name=f"{first.name}+{second.name}",
        nodes=(*first.nodes, *second.nodes),
        task=task,
        inputs=(*first.inputs, *others),
        weights=(*first.weights, *second.weights),
    )
    return Fusion(layer, (first.name, second.name))


def apply_fusions(graph: LayerGraph, names: Collection[str]) -> LayerGraph:
    """The graph with fused layers of these names in place of their members, and no further fusions."""
    chosen = [each for each in graph.fusions if each.layer.name in names]
    first = {each.members[0] for each in chosen}
    last = {each.members[-1]: each.layer for each in chosen}

    def moved(ref: ValueRef) -> ValueRef:
        return replace(ref, source=last[ref.source].name) if ref.source in last else ref

    layers = tuple(
        replace(each, inputs=tuple(map(moved, each.inputs)))
        for each in (last.get(layer.name, layer) for layer in graph.layers if layer.name not in first)
    )
    outputs = tuple(replace(each, source=moved(each.source)) if each.source else each for each in graph.outputs)
    return LayerGraph(layers, graph.inputs, outputs)
