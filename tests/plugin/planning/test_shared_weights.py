"""Layers that read one weight read it in one form, where that costs no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants.routine import Variant
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.policies import Precision
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.limits import UNLIMITED, Quantity
from sartor.tuning.selection.problem.pin import Pin
from tests.plugin.planning.selecting_fakes import FakeTuner, selector, tables_of
from tests.plugin.tied_models import tied


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    path: Path = tmp_path_factory.mktemp("shared") / "tied.onnx"
    onnx.save(tied(BlockEncoding(4, 32, 96, 301), has_points=True), path)
    found = run_import(path, {}, None)
    assert isinstance(found, ImportedModel), found
    return found


def seconds_of(vectors: int, slower: float = 1e-6) -> Callable[[str, str], float]:
    def seconds(_: str, variant: str) -> float:
        if "columns_of_" in variant:
            return 2e-6 + slower
        if "matmul" in variant:
            is_fast = "block_product" in variant and f"vectors={vectors}" in variant
            return 1e-4 if is_fast else 1e-3
        return 2e-6

    return seconds


def selected(imported: ImportedModel, tables: Tables, *pins: Pin) -> Recipe:
    plain = selector(imported, FakeTuner(), Precision.F32)
    solver = replace(plain.solver, policy=replace(plain.solver.policy, pins=pins))
    (recipe, *_), _ = replace(plain, solver=solver).select(tables, UNLIMITED)
    return recipe


def shares(recipe: Recipe) -> bool:
    layers = {layer.name: layer for layer in recipe.graph.layers}
    shared = {*layers["rows"].weights} & {*layers["head"].weights}
    assert len(shared) == 3
    forms = [
        [recipe.variants[name].implementation.packings[layers[name].weights.index(weight)] for weight in sorted(shared)]
        for name in ("rows", "head")
    ]
    assert (forms[0] == forms[1]) == any(one == other for one, other in zip(*forms, strict=True))
    return forms[0] == forms[1]


@pytest.mark.parametrize("vectors", [1, 2, 4])
@pytest.mark.parametrize(("slower", "is_shared"), [(1e-6, True), (1e-3, False)])
def test_a_look_up_follows_the_product(
    imported: ImportedModel, vectors: int, slower: float, *, is_shared: bool
) -> None:
    recipe = selected(imported, tables_of(imported, seconds_of(vectors, slower)))
    assert shares(recipe) == is_shared, recipe.variants["rows"].descriptor
    chosen = {layer.layer: layer.variant for layer in recipe.plan.layers}
    assert chosen["rows"] == recipe.variants["rows"].descriptor


def test_a_pinned_look_up_stays_as_it_is(imported: ImportedModel) -> None:
    tables = tables_of(imported, seconds_of(2))
    recipe = selected(imported, tables, Pin("rows", "*stock*"))
    assert recipe.variants["rows"].descriptor.endswith("stock")
    assert shares(selected(imported, tables, Pin("rows", "*columns_of_2*")))
    assert not shares(selected(imported, tables, Pin("rows", "*columns_of_4*")))


def test_what_a_plan_needs_is_that_of_what_it_chooses(imported: ImportedModel) -> None:
    known = tables_of(imported, seconds_of(2))
    tasks = imported.graph.tasks()
    sized = {
        key: {
            each.descriptor: replace(known.measured[key][each.descriptor], packed_bytes=packed_bytes(tasks[key], each))
            for each in listed
        }
        for key, listed in known.variants.items()
    }
    tables = replace(known, measured=sized)
    shared, pinned = selected(imported, tables), selected(imported, tables, Pin("rows", "*stock*"))
    assert shares(shared)
    assert not shares(pinned)
    assert shared.needed[Quantity.MEMORY] < pinned.needed[Quantity.MEMORY]
    assert shared.needed[Quantity.LATENCY] == pytest.approx(pinned.needed[Quantity.LATENCY] + 1e-6)


def test_only_look_ups_are_chosen_without_a_measurement(imported: ImportedModel) -> None:
    def without(tables: Tables, part: str) -> Tables:
        kept = {
            key: {name: each for name, each in found.items() if part not in name}
            for key, found in tables.measured.items()
        }
        return replace(tables, measured=kept)

    assert shares(selected(imported, without(tables_of(imported, seconds_of(2)), "columns_of_2")))

    def slow_look_ups(_: str, variant: str) -> float:
        return 1e-4 if "matmul" in variant else 1e-2 if "stock" in variant else 2e-2

    slow = tables_of(imported, slow_look_ups)
    assert shares(selected(imported, slow)), "the product follows the look-up"
    assert not shares(selected(imported, without(slow, "matmul.stock")))


def packed_bytes(task: Task, variant: Variant) -> int:
    pairs = zip(variant.implementation.packings, task.weights, strict=True)
    return sum(packing.type_of(logical).bytes for packing, logical in pairs)


@pytest.mark.parametrize(
    ("slower", "cache", "follows"),
    [(1e-6, 1 << 40, True), (2e-5, 1 << 40, False), (2e-5, 1, True), (1e-4, 1, False), (2e-5, 0, False)],
)
def test_a_product_reads_its_weight_as_another_plan_does_if_that_is_hardly_slower(
    imported: ImportedModel, monkeypatch: pytest.MonkeyPatch, slower: float, cache: int, *, follows: bool
) -> None:
    """A weight that no cache holds may take longer alone; of a system that tells no cache, this is not known."""
    monkeypatch.setattr("sartor.planning.shared_weights.last_level_cache", lambda: cache)

    def seconds(key: str, variant: str) -> float:
        return seconds_of(4)(key, variant) if "vectors=2" not in variant else seconds_of(2)(key, variant) + slower

    tables = tables_of(imported, seconds)
    other, alone = selected(imported, tables_of(imported, seconds_of(2))), selected(imported, tables)
    (head,) = [layer for layer in other.graph.layers if layer.name == "head"]
    packings = dict(zip(head.weights, other.variants["head"].implementation.packings, strict=True))
    plain = selector(imported, FakeTuner(), Precision.F32)
    beside = replace(plain, solver=replace(plain.solver, forms=packings))
    (recipe, *_), _ = beside.select(tables, UNLIMITED)
    assert "vectors=4" in alone.variants["head"].descriptor
    assert ("vectors=2" in recipe.variants["head"].descriptor) is follows
    read = recipe.variants["head"].implementation.packings
    assert (dict(zip(head.weights, read, strict=True)) == packings) is follows


def test_a_form_that_no_search_measured_is_read_as_another_plan_does(imported: ImportedModel) -> None:
    other, tables = selected(imported, tables_of(imported, seconds_of(2))), tables_of(imported, seconds_of(4))
    unmeasured = {
        key: {name: measured for name, measured in listed.items() if "vectors=2" not in name}
        for key, listed in tables.measured.items()
    }
    (head,) = [layer for layer in other.graph.layers if layer.name == "head"]
    packings = dict(zip(head.weights, other.variants["head"].implementation.packings, strict=True))
    plain = selector(imported, FakeTuner(), Precision.F32)
    beside = replace(plain, solver=replace(plain.solver, forms=packings))
    (recipe, *_), _ = beside.select(replace(tables, measured=unmeasured), UNLIMITED)
    assert "vectors=2" in recipe.variants["head"].descriptor
    (alone, *_), _ = plain.select(replace(tables, measured=unmeasured), UNLIMITED)
    assert "vectors=4" in alone.variants["head"].descriptor
