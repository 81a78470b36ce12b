"""A layer's own ONNX nodes compute what its code computes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError
from onnx.checker import ValidationError

from sartor.codegen.analysis.integer_ranges import integer_ranges
from sartor.codegen.ir.layer import Layer
from sartor.costing.layer_arbiters import LayerArbiters
from sartor.costing.layer_reference import LayerArbiter, cut_out
from sartor.errors import UnsupportedModelError
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layering import evaluate
from sartor.runtime.output_error import output_error
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from tests.tiny_models import MODELS, Builder

DirectoryFront = Callable[[str], ImportedModel]
# Every way in which a node becomes several layers or several nodes one, and weights that are transformed on the way.
TELLING = ("residual", "silu", "gelu", "shuffle", "split", "layer_norm", "lenet", "bytes_in_and_out")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> DirectoryFront:
    """What the front end makes of a tiny model, with what is large in files."""

    @functools.cache
    def make(name: str) -> ImportedModel:
        folder = tmp_path_factory.mktemp(name)
        onnx.save(MODELS[name](), folder / "model.onnx")
        imported = run_import(folder / "model.onnx", {}, None, folder)
        assert isinstance(imported, ImportedModel), imported
        return imported

    return make


def unit_of(layer: Layer) -> BenchmarkCase:
    task = layer.task
    return BenchmarkCase(task.key, task.inputs, task.weights, task.results, (), integers=integer_ranges(task))


def arbiters(imported: ImportedModel) -> dict[str, LayerArbiter]:
    """By layer, those that can be asked."""
    find = LayerArbiters(imported)
    found = {layer.name: find(unit_of(layer)) for layer in imported.graph.layers}
    return {name: each for name, each in found.items() if each is not None and each.outputs}


@pytest.mark.parametrize("name", TELLING)
def test_nodes_compute_what_the_code_computes(name: str, stored: DirectoryFront) -> None:
    imported = stored(name)
    known = arbiters(imported)
    assert known
    for layer in imported.graph.layers:
        if layer.name not in known:
            continue
        arbiter, task = known[layer.name], layer.task
        data = CaseData(unit_of(layer), arbiter.weights())
        expected = arbiter.results(data.inputs)
        assert expected is not None, layer.name
        found = evaluate(task.body.replace("@layer", "@fold"), [*data.inputs, *data.weights], task.results)
        for one, other in zip(found, expected, strict=True):
            assert output_error(one, other) < 1e-5, layer.name


def test_a_wrong_weight_is_seen(stored: DirectoryFront) -> None:
    """The nodes have weights of their own."""
    imported = stored("residual")
    layer = next(each for each in imported.graph.layers if each.weights)
    arbiter = arbiters(imported)[layer.name]
    data = CaseData(unit_of(layer), [2 * weight for weight in arbiter.weights()])
    (expected,) = arbiter.results(data.inputs) or []
    (found,) = evaluate(layer.task.body.replace("@layer", "@fold"), [*data.inputs, *data.weights], layer.task.results)
    assert output_error(found, expected) > 0.1


def test_what_onnx_has_no_name_for_has_an_arbiter_that_knows_the_layer_alone(stored: DirectoryFront) -> None:
    imported = stored("two_results")
    arbiter = LayerArbiters(imported)(
        unit_of(next(layer for layer in imported.graph.layers if layer.name == "values/values"))
    )
    assert arbiter is not None
    assert arbiter.layer == "values/values"
    assert arbiter.results([np.zeros(1, np.float32)]) is None


def test_a_unit_of_no_layer_has_no_arbiter(stored: DirectoryFront) -> None:
    imported = stored("residual")
    assert LayerArbiters(imported)(replace(unit_of(imported.graph.layers[0]), key="adapt")) is None


def test_a_model_in_memory_gives_no_arbiter(imported_of: DirectoryFront) -> None:
    imported = imported_of("residual")
    assert LayerArbiters(imported)(unit_of(imported.graph.layers[0])) is None


def test_a_lost_model_or_results_without_end_say_nothing(stored: DirectoryFront, tmp_path: Path) -> None:
    imported = stored("residual")
    arbiter = next(iter(arbiters(imported).values()))
    layer = next(each for each in imported.graph.layers if each.name == arbiter.layer)
    inputs = CaseData(unit_of(layer)).inputs
    assert arbiter.results(inputs) is not None
    assert arbiter.results([np.full_like(each, np.inf) for each in inputs]) is None
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert replace(arbiter, model=tmp_path / "broken.onnx").results(inputs) is None


@pytest.mark.parametrize("error", [MemoryError(), ValidationError(), RuntimeError(), EncodeError()])
def test_a_failure_of_onnx_is_not_the_variants(
    error: Exception, stored: DirectoryFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    imported = stored("residual")
    arbiter = next(iter(arbiters(imported).values()))
    layer = next(each for each in imported.graph.layers if each.name == arbiter.layer)
    inputs = CaseData(unit_of(layer)).inputs
    monkeypatch.setattr("sartor.costing.layer_reference.ReferenceModel", fail)
    assert arbiter.results(inputs) is None
    assert replace(arbiter, model=arbiter.model.with_name("lost.onnx")).results(inputs) is None


def test_what_depends_on_more_cannot_be_cut_out() -> None:
    b = Builder()
    b.op("Add", "y", b.op("Mul", "product", "x", "z"), b.weight(3))
    model = b.model([("x", (3,)), ("z", (3,))], [("y", (3,))])
    with pytest.raises(UnsupportedModelError, match="'z'"):
        cut_out(model, ["x"], ["y"])
