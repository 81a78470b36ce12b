"""The edges of a network, and the conversions on them that a choice of variants needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sartor.codegen.ir.graph import INPUT_PREFIX, OUTPUT_PREFIX, LayerGraph
from sartor.codegen.ir.layer import TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.adapts import AdaptKind
from sartor.tuning.selection.problem.problem import Edge


@dataclass(frozen=True)
class Link:
    """An edge of a network with the value that goes along it, of ONNX type ``logical``."""

    edge: Edge
    ref: ValueRef
    logical: TensorType


def links_of(graph: LayerGraph) -> Iterator[Link]:
    """Each use of a value: by layers in their order, then as network outputs."""

    def link(ref: ValueRef, logical: TensorType, consumer: str, slot: int) -> Link:
        producer = INPUT_PREFIX + graph.inputs[ref.index].name if ref.source is None else ref.source
        return Link(Edge(producer, consumer, slot, ref.index if ref.source is not None else 0), ref, logical)

    for layer in graph.layers:
        for slot, (ref, logical) in enumerate(zip(layer.inputs, layer.task.inputs, strict=True)):
            yield link(ref, logical, layer.name, slot)
    for output in graph.outputs:
        if output.source is not None:
            yield link(output.source, output.type, OUTPUT_PREFIX + output.name, 0)


def adapts_between(graph: LayerGraph, chosen: Mapping[str, Variant], device: str) -> list[tuple[Edge, AdaptKind]]:
    """The conversions that a choice of variants needs, in the order of the edges."""
    code = {name: variant.implementation for name, variant in chosen.items()}
    kinds: list[tuple[Edge, AdaptKind]] = []
    for link in links_of(graph):
        # Network inputs and outputs are in ONNX's schema.
        outside = Schema.plain(link.logical, device)
        source, consumer = link.ref.source, link.edge.consumer
        produced = outside if source is None else code[source].outputs[link.ref.index]
        needed = code[consumer].inputs[link.edge.slot] if consumer in code else outside
        kind = AdaptKind.between(link.logical, produced, needed)
        if kind is not None:
            kinds.append((link.edge, kind))
    return kinds


def distinct_adapts(kinds: Iterable[AdaptKind]) -> list[AdaptKind]:
    """Each conversion that moves bytes on one device, once, in a fixed order."""
    return sorted(set(moving_adapts(kinds)))


def moving_adapts(kinds: Iterable[AdaptKind]) -> list[AdaptKind]:
    """What a device computes of the conversions that move bytes, in a fixed order."""
    return sorted(local for kind in kinds if (local := kind.local) and not local.is_free)
