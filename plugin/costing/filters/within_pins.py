"""Drops candidates that no layer may run by its pins: measuring them changes no plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.ir.variants.routine import Rejected, Variant
from sartor.tuning.selection.problem.pin import Pin

_RULED_OUT = Rejected("pins rule it out")


def within_pins(candidates: Candidates, graph: LayerGraph, pins: Sequence[Pin]) -> Candidates:
    """Candidate 0 of each device, beside which others are timed, and what a layer with the task may run.

    Args:
        candidates: of the network.
        graph: the network.
        pins: restrictions of layers.
    """
    named: dict[str, list[tuple[str, ...]]] = {}
    for key, names in _names(graph):
        named.setdefault(key, []).append(names)
    first = {
        (key, variant.device): variant.descriptor
        for key, listed in candidates.variants.items()
        for variant in reversed(listed)
    }

    def judge(key: str, variant: Variant) -> Rejected | None:
        is_kept = first[key, variant.device] == variant.descriptor or any(
            all(pin.allows(name, variant.descriptor) for pin in pins for name in names) for names in named[key]
        )
        return None if is_kept else _RULED_OUT

    return candidates.judged(Filter.PINS, judge) if pins else candidates


def _names(graph: LayerGraph) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names by which pins restrict each layer that a plan may have, with its task's key."""
    yield from ((layer.task.key, (layer.name,)) for layer in graph.layers)
    yield from ((fusion.layer.task.key, (fusion.layer.name, *fusion.members)) for fusion in graph.fusions)
    for childnet in graph.childnets:
        yield from _names(childnet.graph)
