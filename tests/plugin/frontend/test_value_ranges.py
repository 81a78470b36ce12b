"""Ranges inside childnets, and what children read and write in the network."""

from __future__ import annotations

from dataclasses import replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import Values, named_ranges, ranges_of, with_children
from sartor.policies import Precision
from sartor.precision.eligibility import eligibility
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests import grouped_models as models
from tests.importing import imported_model

BEFORE, AFTER = QuantisedRange(0.1, -128, "int8"), QuantisedRange(0.3, 5, "int8")
# Kernels for vectors of 64 bytes, whatever this machine has.
TARGET = Target.create("cpu", "x86-64-v4")


def _inside(graph: LayerGraph, layer: str) -> dict[ValueRef, QuantisedRange]:
    """Ranges of what the children of a layer hand on, if those of the layer's image and result are known."""
    (own,) = (each for each in graph.layers if each.name == layer)
    found = with_children(graph, {own.inputs[0]: BEFORE, ValueRef(layer, 0): AFTER})
    return {ref: each for ref, each in found.items() if (ref.source or "").startswith(f"{layer}/")}


def test_parts_have_the_range_of_the_whole() -> None:
    graph = imported_model(models.bottleneck(), target=TARGET).graph
    (net,) = graph.childnets_of("conv2")
    found = _inside(graph, "conv2")
    results = [ref for layer in net.graph.layers for ref in Values.written(layer)]
    assert set(found) == set(results)
    assert {each for ref, each in found.items() if ref.source == "conv2/split"} == {BEFORE}
    assert {each for ref, each in found.items() if ref.source != "conv2/split"} == {AFTER}
    assert ranges_of(named_ranges(found)) == found


def test_what_ends_in_the_join_is_no_part_of_it() -> None:
    """A residual is added to all parts at once, and what they are before that is no value of the network."""
    graph = imported_model(models.dilated_with_residual(), target=TARGET).graph
    (layer,) = graph.layers
    assert {ref.source for ref in _inside(graph, layer.name)} == {f"{layer.name}/split", f"{layer.name}/join"}


def test_nothing_is_known_inside_of_what_is_not_known_outside() -> None:
    graph = imported_model(models.bottleneck(), target=TARGET).graph
    assert with_children(graph, {ValueRef(None, 0): BEFORE}) == {ValueRef(None, 0): BEFORE}


def test_children_read_the_layers_activations() -> None:
    graph = imported_model(models.bottleneck(), target=TARGET).graph
    values = Values(graph)
    layers = {layer.name: layer for layer in graph.all_layers()}
    assert values.read(layers["conv2/split"], 0) == values.read(layers["conv2"], 0) == ValueRef("conv1", 0)
    assert values.read(layers["conv1"], 0) == ValueRef(None, 0)
    assert values.read(layers["conv2/part0"], 0) == ValueRef("conv2/split", 0)


def test_children_may_compute_in_8_bits_where_ranges_are_known() -> None:
    imported = imported_model(models.bottleneck(), target=TARGET)
    config = CompileConfig(target=TARGET, threads=1, jobs=1, precision=Precision.INT8)
    variants = find_candidates(imported, config.planning).variants
    layers = {layer.name: layer for layer in imported.graph.all_layers()}
    ranged = {ValueRef("conv1", 0): BEFORE, ValueRef("conv2", 0): AFTER}

    def offered(name: str, ranges: dict[ValueRef, QuantisedRange]) -> bool:
        may_run = eligibility(_with(imported, ranges), config.precision)
        # Filters alone in 8 bits need no range of what they multiply.
        found = (each for each in variants[layers[name].task.key] if each.dtype == "i8" and not each.traits.weights)
        return any(may_run(layers[name], each) for each in found)

    children = [name for name in layers if name.startswith("conv2/")]
    assert len(children) >= 4
    assert all(offered(name, with_children(imported.graph, ranged)) for name in children)
    # The network's input is read by another layer, and its range says nothing about what a childnet is given.
    assert not any(offered(name, {ValueRef(None, 0): BEFORE}) for name in children)


def test_several_results_need_one_range() -> None:
    imported = imported_model(models.bottleneck(), target=TARGET)
    config = CompileConfig(target=TARGET, threads=1, jobs=1, precision=Precision.INT8)
    (split,) = (layer for layer in imported.graph.all_layers() if layer.name == "conv2/split")
    stored = [
        each for each in find_candidates(imported, config.planning).variants[split.task.key] if each.dtype == "i8"
    ]
    alike = {ValueRef("conv1", 0): BEFORE} | dict.fromkeys(Values.written(split), BEFORE)
    other = alike | {Values.written(split)[-1]: AFTER}
    assert all(eligibility(_with(imported, alike), config.precision)(split, each) for each in stored)
    assert not any(eligibility(_with(imported, other), config.precision)(split, each) for each in stored)


def _with(imported: ImportedModel, ranges: dict[ValueRef, QuantisedRange]) -> ImportedModel:
    return replace(imported, ranges=ranges)
