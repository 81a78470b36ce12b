"""Layers of small networks compared with ONNX Runtime, some of them deliberately wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import ROUTINES
from sartor.comparison.intermediate_outputs import make_probe, needed_layers
from sartor.comparison.layer_errors import LayerComparison, LayerError, Workshop, nearest_before
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.listing import list_candidates
from sartor.errors import CompileError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import layer_tensors
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.planning.recorded_recipe import recipe_of_plan
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf

Compare = Callable[..., LayerComparison]

CONFIG = CompileConfig(threads=1, jobs=1)
RIGHT = 1e-5


@pytest.fixture
def compare(imported_of: ImportedOf, pool: WorkerPool, tmp_path: Path) -> Compare:
    """A comparison of a tiny model, by default of its stock code."""

    def make(
        model: str, *, imported: ImportedModel | None = None, recipe: Recipe | None = None, chunk: int = 1 << 20
    ) -> LayerComparison:
        original = imported_of(model)
        recipe = recipe or recipe_of(original)
        tensors = layer_tensors(prepared_model(original.prepared), recipe.graph)
        shop = Workshop(pool, tmp_path, CONFIG.header, "cpu", 1, chunk_bytes=chunk)
        return LayerComparison(imported or original, recipe, tensors, original.samples, shop)

    return make


def recipe_of(imported: ImportedModel) -> Recipe:
    """Candidate 0 of every layer."""
    return guessed_recipe(
        imported, list_candidates(imported.graph, ROUTINES[:1], CONFIG.target, ROUTINES[:1]).variants, CONFIG.planning
    )


def with_other_weight(imported: ImportedModel, name: str) -> ImportedModel:
    """The front whose model ONNX Runtime runs with one weight that is not what was compiled."""
    model: ModelProto = prepared_model(imported.prepared)
    node = next(each for each in model.graph.node if each.name == name)
    tensor = next(initializer for initializer in model.graph.initializer if initializer.name == node.input[1])
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.1), tensor.name))
    return replace(imported, prepared=model.SerializeToString())


def by_layer(rows: list[LayerError]) -> dict[str, LayerError]:
    return {row.layer: row for row in rows}


@pytest.mark.parametrize("model", ["residual", "squeeze_excite", "bytes_in_and_out", "constant_output", "two_results"])
def test_every_layer_of_a_right_module_is_right(compare: Compare, model: str) -> None:
    comparison = compare(model)
    rows = comparison.table()
    assert [row.layer for row in rows] == [layer.name for layer in comparison.recipe.graph.layers]
    assert all(row.error is None or row.error < RIGHT for row in rows)
    assert all(row.alone is None or row.alone < RIGHT for row in rows)
    assert any(row.error is not None for row in rows)
    assert all(row.tensors for row in rows if row.error is not None)


def test_the_layer_with_a_wrong_weight_is_named(compare: Compare, imported_of: ImportedOf) -> None:
    imported = with_other_weight(imported_of("blocks"), "block/conv.1")
    rows = by_layer(compare("blocks", imported=imported).table())
    found = compare("blocks", imported=imported).bisect(1e-3)
    assert rows["block/conv.0"].error is not None
    assert rows["block/conv.0"].error < RIGHT
    assert found.layer == rows["block/conv.1"]
    assert found.layer is not None
    assert found.layer.error is not None
    assert found.layer.alone is not None
    assert min(found.layer.error, found.layer.alone) > 1e-2
    assert found.search.inputs == {"block/conv.0": rows["block/conv.0"].error}


def test_alone_a_layer_is_not_blamed_for_those_before_it(compare: Compare, imported_of: ImportedOf) -> None:
    imported = with_other_weight(imported_of("blocks"), "block/conv.1")
    after = by_layer(compare("blocks", imported=imported).table())["last"]
    assert after.error is not None
    assert after.error > 1e-3
    assert after.before > 1e-3
    assert after.growth == pytest.approx(after.error / after.before)
    assert after.alone is not None
    assert after.alone < RIGHT


def test_a_variant_that_computes_something_else_is_found(compare: Compare, imported_of: ImportedOf) -> None:
    recipe = recipe_of(imported_of("squeeze_excite"))
    wrong = {**recipe.variants, "mean": _halved(recipe.variants["mean"])}
    found = compare("squeeze_excite", recipe=replace(recipe, variants=wrong)).bisect(1e-3)
    assert found.layer is not None
    assert found.layer.layer == "mean"
    assert list(found.search.inputs) == ["conv"]


def _halved(variant: Variant) -> Variant:
    """The variant with another divisor of its mean."""
    body = variant.implementation.body
    assert "1.600000e+01" in body
    return replace(
        variant, implementation=replace(variant.implementation, body=body.replace("1.600000e+01", "3.200000e+01"))
    )


def test_chunks_give_what_all_at_once_gives(compare: Compare) -> None:
    assert compare("residual", chunk=1).table() == compare("residual").table()


def test_a_fused_layer_is_compared_by_its_last_result(compare: Compare, imported_of: ImportedOf) -> None:
    imported = imported_of("separable")
    candidates = find_candidates(imported, CONFIG.planning, everything=False).variants
    fused = {fusion.layer.name: fusion.layer for fusion in imported.graph.fusions}
    if any(len(candidates[each.task.key]) < 2 for each in fused.values()):
        pytest.skip("no kernel computes these layers together on this machine")
    recipe = guessed_recipe(imported, candidates, CONFIG.planning)
    layers = tuple(
        replace(
            recipe.plan.layers[0],
            layer=name,
            nodes=each.nodes,
            task=each.task.key,
            variant=candidates[each.task.key][-1].descriptor,
        )
        for name, each in fused.items()
    )
    rows = compare(
        "separable", recipe=recipe_of_plan(replace(recipe.plan, layers=layers), imported, candidates, CONFIG.target)
    ).table()
    assert [row.tensors for row in rows] == [("add",), ("y",)]
    assert all(row.error is not None and row.error < RIGHT for row in rows)
    assert all(row.alone is not None and row.alone < RIGHT for row in rows)


def test_nothing_is_compiled_that_a_probe_does_not_need(imported_of: ImportedOf) -> None:
    imported = imported_of("squeeze_excite")
    recipe = recipe_of(imported)
    tensors = layer_tensors(prepared_model(imported.prepared), recipe.graph)
    assert needed_layers(imported.graph, ["squeeze"]) == {"conv", "mean", "squeeze"}
    probe = make_probe(recipe.graph, recipe.variants, tensors, [], ["y"])
    assert len(probe.graph.layers) == 1
    assert sorted(probe.fed.values()) == sorted(filter(None, tensors["y"].inputs))
    assert list(probe.expected.values()) == ["y"]
    assert set(probe.variants) == {layer.name for layer in probe.graph.layers}


def test_what_cannot_be_compared_hands_on_what_is_before_it(imported_of: ImportedOf) -> None:
    graph = imported_of("squeeze_excite").graph
    without: Mapping[str, tuple[str, ...]] = nearest_before(graph, lambda name: name in {"conv", "excite"})
    assert without["excite"] == ("conv",)
    assert sorted(without["y"]) == ["conv", "excite"]


def test_a_probe_that_does_not_compile_is_an_error(compare: Compare, imported_of: ImportedOf) -> None:
    recipe = recipe_of(imported_of("softmax"))
    broken = {
        name: replace(variant, implementation=replace(variant.implementation, body="nonsense"))
        for name, variant in recipe.variants.items()
    }
    with pytest.raises(CompileError):
        compare("softmax", recipe=replace(recipe, variants=broken)).table()
