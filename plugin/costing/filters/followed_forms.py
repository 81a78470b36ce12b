"""Drops candidates that read weights in another form than a plan does that is in the same file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.ir.variants.routine import Rejected, Variant
from sartor.costing.filters.shortlist import first_variants

_OTHER = Rejected("it reads weights in another form than another plan of the file, which would store them twice")


def reading_forms(candidates: Candidates, graph: LayerGraph, forms: Mapping[str, Packing]) -> Candidates:
    """The candidates that read weights in forms, of the tasks that have such.

    Args:
        candidates: of the network.
        graph: the network.
        forms: by the names of weights; of others any form may be read.
    """
    wanted = _wanted(graph, forms)

    def reads(key: str, variant: Variant) -> bool:
        packings = variant.implementation.packings
        return all(packings[place] in known for place, known in wanted.get(key, {}).items())

    following = {key for key, listed in candidates.variants.items() if any(reads(key, variant) for variant in listed)}

    # What others are timed and checked beside is kept.
    first = first_variants(candidates.variants)

    def judge(key: str, variant: Variant) -> Rejected | None:
        is_kept = key not in following or reads(key, variant) or (key, variant.descriptor) in first
        return None if is_kept else _OTHER

    return candidates.judged(Filter.FORMS, judge)


def _wanted(graph: LayerGraph, forms: Mapping[str, Packing]) -> dict[str, dict[int, list[Packing]]]:
    """The forms of each task's weights by their places, which layers of equal tasks may have several of."""
    wanted: dict[str, dict[int, list[Packing]]] = defaultdict(lambda: defaultdict(list))
    for layer in (*graph.layers, *(fusion.layer for fusion in graph.fusions)):
        for place, name in enumerate(layer.weights):
            if name in forms:
                wanted[layer.task.key][place].append(forms[name])
    return wanted
