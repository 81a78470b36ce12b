"""The conversions that a choice of variants needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sartor.codegen.layer import TensorType, ValueRef
from sartor.codegen.layouts import plain_layout
from sartor.codegen.routine import Variant
from sartor.codegen.schema import schema_of
from sartor.dialect_passes.form_layers import LayerGraph
from sartor.tuning.selection.problem import Edge
from sartor.tuning.selection_problem import INPUT_PREFIX, OUTPUT_PREFIX
from sartor.tuning.unit import AdaptKind


def adapts_between(graph: LayerGraph, chosen: Mapping[str, Variant], device: str) -> list[tuple[Edge, AdaptKind]]:
    """The conversions that a choice of variants needs, in the order of the edges."""
    found: list[tuple[Edge, AdaptKind]] = []

    def check(ref: ValueRef, logical: TensorType, form: str, consumer: str, slot: int) -> None:
        produced = chosen[ref.source].implementation.output if ref.source else plain_layout(logical)
        if produced != form:
            name = ref.source if ref.source else INPUT_PREFIX + graph.inputs[ref.index].name
            schemas = schema_of(device, logical, produced), schema_of(device, logical, form)
            found.append((Edge(name, consumer, slot), AdaptKind(str(logical), *schemas)))

    for layer in graph.layers:
        forms = chosen[layer.name].implementation.inputs
        for slot, (ref, logical) in enumerate(zip(layer.inputs, layer.task.inputs, strict=True)):
            check(ref, logical, forms[slot], layer.name, slot)
    for each in graph.outputs:
        if each.source is not None:
            check(each.source, each.type, plain_layout(each.type), OUTPUT_PREFIX + each.name, 0)
    return found


def units_of(kinds: Iterable[AdaptKind]) -> list[AdaptKind]:
    """Each conversion that moves bytes, once, in a fixed order."""
    return sorted({kind for kind in kinds if not kind.is_free})
