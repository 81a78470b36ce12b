"""Layers that read one weight read it in one form, where that costs no time."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Precision
from sartor.tuning.selection.problem.limits import UNLIMITED
from tests.plugin.planning.selecting_fakes import FakeTuner, selector, tables_of
from tests.plugin.tied_models import tied


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    path: Path = tmp_path_factory.mktemp("shared") / "tied.onnx"
    onnx.save(tied(BlockEncoding(4, 32, 96, 301), has_points=True), path)
    found = run_import(path, {}, None)
    assert isinstance(found, ImportedModel), found
    return found


@pytest.mark.parametrize("vectors", [1, 2, 4])
@pytest.mark.parametrize(("slower", "is_shared"), [(1e-6, True), (1e-3, False)])
def test_a_look_up_follows_the_product(
    imported: ImportedModel, vectors: int, slower: float, *, is_shared: bool
) -> None:
    def seconds(_: str, variant: str) -> float:
        if "columns_of_" in variant:
            return 2e-6 + slower
        if "matmul" in variant:
            is_fast = "block_product" in variant and f"vectors={vectors}" in variant
            return 1e-4 if is_fast else 1e-3
        return 2e-6

    (recipe, *_), _ = selector(imported, FakeTuner(), Precision.F32).select(tables_of(imported, seconds), UNLIMITED)
    layers = {layer.name: layer for layer in recipe.graph.layers}
    shared = {*layers["rows"].weights} & {*layers["head"].weights}
    assert len(shared) == 3
    for weight in shared:
        packings = {
            name: recipe.variants[name].implementation.packings[layers[name].weights.index(weight)]
            for name in ("rows", "head")
        }
        assert (packings["rows"] == packings["head"]) == is_shared, recipe.variants["rows"].descriptor
    chosen = {each.layer: each.variant for each in recipe.plan.layers}
    assert chosen["rows"] == recipe.variants["rows"].descriptor
