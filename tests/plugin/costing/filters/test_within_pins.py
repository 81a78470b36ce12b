"""What pins leave of the candidates, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.routine_registry import fused_routines
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates, measured_candidates
from sartor.costing.filters.within_pins import within_pins
from sartor.costing.listing import list_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Precision, Search
from sartor.tuning.selection.problem.pin import Pin
from tests.importing import ImportedOf

CPU = Target.create("cpu")
DIRECT = "cpu:f32/conv2d.direct{*"


@pytest.fixture
def imported(imported_of: ImportedOf) -> ImportedModel:
    return imported_of("separable")


@pytest.fixture
def candidates(imported: ImportedModel) -> Candidates:
    return list_candidates(imported.graph, routines_for(()), CPU, fused_routines())


def left(candidates: Candidates, graph: LayerGraph, pins: Sequence[Pin]) -> dict[str, list[str]]:
    """Descriptors that are left, by layer."""
    kept = within_pins(candidates, graph, pins).variants
    return {layer.name: [each.descriptor for each in kept[layer.task.key]] for layer in graph.all_layers()}


def test_a_pinned_layer_keeps_candidate_0_and_what_its_pins_allow(
    candidates: Candidates, imported: ImportedModel
) -> None:
    before = left(candidates, imported.graph, ())
    after = left(candidates, imported.graph, (Pin("joined1", DIRECT), Pin("joined1", "*unroll=1,*")))
    assert after["joined1"][0] == "cpu:f32/conv2d.stock"
    assert all(".direct{" in name and "unroll=1," in name for name in after["joined1"][1:])
    assert 1 < len(after["joined1"]) < len(before["joined1"])
    assert after["apart1"] == before["apart1"]
    assert after["joined2"] == before["joined2"]


def test_a_pair_is_under_the_pins_of_its_layers(candidates: Candidates, imported: ImportedModel) -> None:
    before = left(candidates, imported.graph, ())
    after = left(candidates, imported.graph, (Pin("joined1", DIRECT),))
    assert len(after["apart1+joined1"]) == 1 < len(before["apart1+joined1"])
    assert after["apart2+joined2"] == before["apart2+joined2"]
    pairs = left(candidates, imported.graph, (Pin("*", "*/fused.*"),))
    assert pairs["apart1+joined1"] == before["apart1+joined1"]
    assert pairs["joined1"] == before["joined1"][:1]


def test_what_one_of_two_equal_layers_may_run_is_kept(candidates: Candidates, imported: ImportedModel) -> None:
    graph = imported.graph
    (layer,) = (each for each in graph.layers if each.name == "joined1")
    longer = replace(graph, layers=(*graph.layers, replace(layer, name="equal")))
    before = left(candidates, graph, ())["joined1"]
    assert left(candidates, longer, (Pin("joined1", DIRECT),))["joined1"] == before
    both = left(candidates, longer, (Pin("joined1", DIRECT), Pin("equal", "*.nhwc")))["joined1"]
    assert {"cpu:f32/conv2d.stock", "cpu:f32/conv2d.nhwc"} < set(both) < set(before)


def test_the_ledger_names_what_pins_rule_out_where_only_f32_is_computed(imported: ImportedModel) -> None:
    config = CompileConfig(pins=(Pin("joined1", DIRECT),))
    found = find_candidates(imported, config.planning, everything=False)
    measured = measured_candidates(found, imported, CPU, config.planning, Search.MODEL)
    kept = {(key, each.descriptor) for key, listed in measured.variants.items() for each in listed}
    listed = {(key, each.descriptor) for key, variants in found.variants.items() for each in variants}
    dropped = [entry for entry in measured.ledger if entry.by is Filter.PINS]
    assert listed - kept == {(entry.task, entry.variant) for entry in dropped} != set()
    narrower = replace(config, precision=Precision.F16).planning
    assert measured_candidates(found, imported, CPU, narrower, Search.MODEL).variants == found.variants
