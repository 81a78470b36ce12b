"""Candidates that read weights in the form of another plan of the same file: what is measured, or left, of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.ir.variants.routine import Rejected, Variant
from sartor.costing.filters.shortlist import first_variants
from sartor.tuning.measuring.benchmark_case import BenchmarkCase

_OTHER = Rejected("it reads weights in another form than another plan of the file, which would store them twice")


def reading_forms(candidates: Candidates, graph: LayerGraph, forms: Mapping[str, Packing]) -> Candidates:
    """The candidates that read weights in forms, of the tasks that have such.

    Args:
        candidates: of the network.
        graph: the network.
        forms: by the names of weights; of others any form may be read.
    """
    reads = _reads(graph, forms)
    following = {key for key, listed in candidates.variants.items() if any(reads(key, variant) for variant in listed)}

    # What others are timed and checked beside is kept.
    first = first_variants(candidates.variants)

    def judge(key: str, variant: Variant) -> Rejected | None:
        is_kept = key not in following or reads(key, variant) or (key, variant.descriptor) in first
        return None if is_kept else _OTHER

    return candidates.judged(Filter.FORMS, judge)


def unmeasured_forms(
    cases: Sequence[BenchmarkCase], known: Mapping[str, Set[str]], graph: LayerGraph, forms: Mapping[str, Packing]
) -> Iterator[BenchmarkCase]:
    """Cases of which a search measured nothing that reads weights in ``forms``, each with what does and candidate 0.

    Such variants are taken where they are hardly slower, so their times count although none is the fastest.

    Args:
        cases: tasks with all variants.
        known: descriptors of variants that are measured, by the task's key.
        graph: the network.
        forms: by the names of weights.
    """
    wanted, reads = _wanted(graph, forms), _reads(graph, forms)
    for case in cases:
        first, *others = case.variants
        if case.key not in wanted or reads(case.key, first):
            continue
        following = [variant for variant in others if reads(case.key, variant)]
        if following and known.get(case.key, set()).isdisjoint(variant.descriptor for variant in following):
            yield replace(case, variants=(first, *following))


def _reads(graph: LayerGraph, forms: Mapping[str, Packing]) -> Callable[[str, Variant], bool]:
    """Whether a variant of a task reads all weights in forms, of which those of other names may have any."""
    wanted = _wanted(graph, forms)

    def reads(key: str, variant: Variant) -> bool:
        packings = variant.implementation.packings
        return all(packings[place] in known for place, known in wanted.get(key, {}).items())

    return reads


def _wanted(graph: LayerGraph, forms: Mapping[str, Packing]) -> dict[str, dict[int, list[Packing]]]:
    """The forms of each task's weights by their places, which layers of equal tasks may have several of."""
    wanted: dict[str, dict[int, list[Packing]]] = defaultdict(lambda: defaultdict(list))
    for layer in (*graph.layers, *(fusion.layer for fusion in graph.fusions)):
        for place, name in enumerate(layer.weights):
            if name in forms:
                wanted[layer.task.key][place].append(forms[name])
    return wanted
