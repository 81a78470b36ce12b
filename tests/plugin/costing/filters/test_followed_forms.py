"""Which candidates are left where weights are read as another plan of the file reads them."""

from __future__ import annotations

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.packing import Packing, Transpose
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.routines import routines_for
from sartor.costing.filters.followed_forms import reading_forms, unmeasured_forms
from sartor.costing.listing import list_candidates
from sartor.tuning.cost_tables.tables import tuned_cases
from tests.importing import ImportedOf


def listed(imported_of: ImportedOf) -> tuple[LayerGraph, Candidates]:
    graph = imported_of("residual").graph
    return graph, list_candidates(graph, routines_for(()), Target.create("cpu"))


def test_layers_read_a_form_alone_where_a_routine_does(imported_of: ImportedOf) -> None:
    graph, candidates = listed(imported_of)
    layer = next(layer for layer in graph.layers if layer.weights)
    name, (first, *others) = layer.weights[0], candidates.variants[layer.task.key]
    form = others[-1].implementation.packings[0]
    assert form != first.implementation.packings[0]
    found = reading_forms(candidates, graph, {name: form})
    kept, *following = found.variants[layer.task.key]
    # Beside the first one others are timed and checked.
    assert kept == first
    assert following == [each for each in others if each.implementation.packings[0] == form]
    dropped = {entry.variant for entry in found.ledger if entry.by is Filter.FORMS}
    assert dropped == {each.descriptor for each in others} - {each.descriptor for each in following}
    for key, variants in found.variants.items():
        assert key == layer.task.key or variants == candidates.variants[key]


def test_layers_that_no_routine_reads_so_keep_all(imported_of: ImportedOf) -> None:
    graph, candidates = listed(imported_of)
    layer = next(layer for layer in graph.layers if layer.weights)
    form = Packing((Transpose((0, 1, 3, 2)),))
    assert form not in {each.implementation.packings[0] for each in candidates.variants[layer.task.key]}
    assert reading_forms(candidates, graph, {layer.weights[0]: form}).variants == candidates.variants


def test_what_reads_a_form_is_measured_where_a_search_measured_nothing_that_does(imported_of: ImportedOf) -> None:
    graph, candidates = listed(imported_of)
    cases = tuned_cases(graph, candidates.variants)
    layer = next(layer for layer in graph.layers if layer.weights)
    name, (first, *others) = layer.weights[0], candidates.variants[layer.task.key]
    form = others[-1].implementation.packings[0]
    following = [variant for variant in others if variant.implementation.packings[0] == form]
    apart = next(variant for variant in others if variant.implementation.packings[0] != form)
    known = {layer.task.key: {first.descriptor, apart.descriptor}}
    (case,) = unmeasured_forms(cases, known, graph, {name: form})
    assert case.key == layer.task.key
    assert case.variants == (first, *following)
    known[layer.task.key].add(following[-1].descriptor)
    assert not [*unmeasured_forms(cases, known, graph, {name: form})]
    # Candidate 0 is measured in any case.
    assert not [*unmeasured_forms(cases, known, graph, {name: first.implementation.packings[0]})]
