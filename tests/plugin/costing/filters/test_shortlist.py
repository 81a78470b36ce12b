"""Which candidates are measured, and where reshapes may stand for transpositions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.filters.shortlist import best_guesses, shortlisted
from sartor.costing.listing import list_candidates
from sartor.tuning.selection.problem.pin import Pin
from tests.importing import ImportedOf, imported_model
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, weights

MODEL = "residual"


@pytest.fixture
def names(imported_of: ImportedOf) -> Callable[[tuple[Pin, ...]], dict[str, list[str]]]:
    """Descriptors that are left, by layer, under some pins."""
    imported = imported_of(MODEL)
    candidates = list_candidates(imported.graph, routines_for(()), Target.create("cpu"))

    def listed(pins: tuple[Pin, ...]) -> dict[str, list[str]]:
        kept = shortlisted(candidates, imported.graph, pins).variants
        return {layer.name: [each.descriptor for each in kept[layer.task.key]] for layer in imported.graph.layers}

    return listed


def test_kernels_push_out_other_lowerings(names: Callable[[tuple[Pin, ...]], dict[str, list[str]]]) -> None:
    convolutions = [each for each in names(()).values() if any(".direct" in name for name in each)]
    assert convolutions
    for convolution in convolutions:
        assert convolution[0].endswith(".stock")
        assert not any(".nchwc" in name or ".nhwc" in name for name in convolution)


def test_a_pinned_routine_is_measured(names: Callable[[tuple[Pin, ...]], dict[str, list[str]]]) -> None:
    before, after = names(()), names((Pin("*", "*.nchwc*"),))
    gained = [name for name in after if len(after[name]) > len(before[name])]
    assert gained
    assert all(any(".nchwc" in each for each in after[name]) for name in gained)


def test_the_pin_of_one_of_two_equal_layers_is_kept(imported_of: ImportedOf) -> None:
    graph = imported_of(MODEL).graph
    candidates = list_candidates(graph, routines_for(()), Target.create("cpu"))
    key = next(
        key for key, listed in candidates.variants.items() if any(".nchwc" in each.descriptor for each in listed)
    )
    layer = next(layer for layer in graph.layers if layer.task.key == key)
    longer = replace(graph, layers=(*graph.layers, replace(layer, name="equal")))
    kept = shortlisted(candidates, longer, (Pin(layer.name, "*.nchwc*"),)).variants[key]
    assert any(".nchwc" in each.descriptor for each in kept)


def test_layers_without_kernels_keep_everything(imported_of: ImportedOf) -> None:
    imported = imported_of("blocks")
    found = list_candidates(imported.graph, routines_for(()), Target.create("vulkan"))
    variants = {
        key: tuple(variant for variant in listed if not variant.implementation.kernel)
        for key, listed in found.variants.items()
    }
    assert any(len(listed) > 1 for listed in variants.values())
    without = replace(found, variants=variants)
    assert shortlisted(without, imported.graph, ()) == without


def test_first_guesses_of_each_routine_are_kept(imported_of: ImportedOf) -> None:
    imported = imported_of(MODEL)
    candidates = list_candidates(imported.graph, routines_for(()), Target.create("cpu"))
    variants, kept = candidates.variants, best_guesses(candidates, imported.graph, (), 2).variants
    for key, listed in kept.items():
        routines = [each.descriptor.partition("{")[0] for each in listed]
        assert listed[0] is variants[key][0]
        assert max(Counter(routines).values()) <= 2
        assert set(routines) == {each.descriptor.partition("{")[0] for each in variants[key]}
    assert any(len(kept[key]) < len(variants[key]) for key in kept)


def test_all_variants_of_a_pinned_layer_are_kept(imported_of: ImportedOf) -> None:
    imported = imported_of(MODEL)
    candidates = list_candidates(imported.graph, routines_for(()), Target.create("cpu"))
    assert best_guesses(candidates, imported.graph, (Pin("*", "*.direct*"),), 1) == candidates


def _views(built: onnx.ModelProto) -> dict[str, list[str]]:
    """The reshapes of each layer that is not left out."""
    found = imported_model(built)
    candidates = find_candidates(found, CompileConfig(threads=1).planning, everything=False)
    return {
        layer.name: [each.routine for each in candidates.variants[layer.task.key] if each.traits.is_free]
        for layer in found.graph.layers
    }


def test_a_head_behind_a_convolution_is_a_view() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv"),
        node("Transpose", ["c"], ["t"], name="last", perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "shape"], ["y"], name="flat"),
    ]
    constants = {"w": weights(18, 16, 1, 1), "shape": ints(1, -1, 6)}
    found = _views(model(nodes, [("x", (1, 16, 5, 7), FLOAT)], [("y", (1, 105, 6), FLOAT)], constants))
    assert sorted(map(tuple, found.values())) == [(), ("view_from_last",)]


def test_a_first_transposition_in_front_of_a_convolution_is_a_view() -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], name="first", perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["y"], name="conv"),
    ]
    constants = {"w": weights(18, 16, 1, 1)}
    found = _views(model(nodes, [("x", (1, 5, 7, 16), FLOAT)], [("y", (1, 18, 5, 7), FLOAT)], constants))
    assert sorted(map(tuple, found.values())) == [(), ("view_to_last",)]


def test_a_transposition_of_an_input_for_an_output_is_none() -> None:
    nodes = [node("Transpose", ["x"], ["y"], name="last", perm=[0, 2, 3, 1])]
    found = _views(model(nodes, [("x", (1, 16, 5, 7), FLOAT)], [("y", (1, 5, 7, 16), FLOAT)]))
    assert list(found.values()) == [[]]
