"""Weights that a layer reads once are fetched ahead where they cannot be in the second-level cache."""

from __future__ import annotations

import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.vector.product import Product
from sartor.codegen.routines.vector.recurrent import Recurrent
from sartor.dialect_passes.opening.open_graph import open_graph
from tests.codegen.routines.harness import Subject, compiled, opened, relative_errors
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights

_TARGET = Target.create("cpu", "x86-64-v4")


def _product(rows: int, depth: int, columns: int) -> ModelProto:
    return model(
        [node("MatMul", ["x", "w"], ["y"])], [("x", (rows, depth), FLOAT)], ["y"], {"w": weights(depth, columns)}
    )


def _recurrence(steps: int, hidden: int) -> ModelProto:
    shapes = {"w": (1, 4 * hidden, 3), "r": (1, 4 * hidden, hidden)}
    constants = {
        name: weights(*shape, seed=seed, scale=1 / hidden) for seed, (name, shape) in enumerate(shapes.items())
    }
    made = node("LSTM", ["x", *constants], ["y"], hidden_size=hidden)
    return model([made], [("x", (steps, 1, 3), FLOAT)], [("y", (steps, 1, 1, hidden), FLOAT)], constants)


def _layer(made: ModelProto, kind: LayerKind) -> Layer:
    return next(layer for layer in imported_model(made).graph.layers if layer.task.kind is kind)


def _code(routine: Product | Recurrent, layer: Layer) -> str:
    listed = choices_of(routine, layer.task, _TARGET)
    assert not isinstance(listed, Rejected)
    built = routine.build(layer.task, listed[0], _TARGET)
    assert isinstance(built, Implementation)
    return lower({"layer": built}, _TARGET)["layer"].text


def _is_fetched(routine: Product | Recurrent, layer: Layer) -> bool:
    return "memref.prefetch" in _code(routine, layer)


@pytest.mark.parametrize(("rows", "columns", "fetches"), [(1, 640, True), (1, 256, False), (4, 640, True)])
def test_weights_of_a_product_with_a_vector_are_fetched_ahead(rows: int, columns: int, *, fetches: bool) -> None:
    layer = _layer(_product(rows, 256, columns), LayerKind.CONTRACTION)
    assert _is_fetched(Product(), layer) == fetches


@pytest.mark.parametrize(("columns", "fetches"), [(640, True), (256, False)])
def test_the_next_panel_is_fetched_for_any_number_of_rows(columns: int, *, fetches: bool) -> None:
    one, other = (imported_model(_product(rows, 256, columns)) for rows in (64, 61))
    fit = Fit((Symbol("rows", 1, 64),), (61,))
    opened_graph = open_graph((one.graph, one.weights), (other.graph, other.weights), fit)
    layer = next(each for each in opened_graph.layers if each.task.kind is LayerKind.CONTRACTION)
    code = _code(Product(), layer)
    assert ("locality<2>" in code) == fetches
    # That is where weights of the same panel would be fetched.
    assert "locality<3>" not in code


@pytest.mark.parametrize(
    ("steps", "hidden", "fetches"), [(1, 200, True), (1, 96, False), (5, 200, False), (5, 272, True)]
)
def test_matrices_of_recurrent_layers_are_fetched_ahead(steps: int, hidden: int, *, fetches: bool) -> None:
    assert _is_fetched(Recurrent(), _layer(_recurrence(steps, hidden), LayerKind.RECURRENCE)) == fetches


def test_what_is_fetched_beyond_a_weights_end_changes_no_result() -> None:
    target, subjects = Target.create("cpu"), dict[str, Subject]()
    for kind, made in ((LayerKind.CONTRACTION, _product(1, 250, 640)), (LayerKind.RECURRENCE, _recurrence(1, 186))):
        imported = imported_model(made)
        layer = next(each for each in imported.graph.layers if each.task.kind is kind)
        routine = Product() if kind is LayerKind.CONTRACTION else Recurrent()
        listed, stock = choices_of(routine, layer.task, target), Stock().build(layer.task, {}, target)
        assert not isinstance(listed, Rejected)
        built = {f"kernel{at}": routine.build(layer.task, each, target) for at, each in enumerate(listed[:3])}
        found = {name: each for name, each in {"stock": stock, **built}.items() if isinstance(each, Implementation)}
        assert len(found) > 1
        subjects[layer.name] = Subject(layer, imported.weights, found)
    program = opened(compiled(subjects, target), target, 1)
    for subject in subjects.values():
        assert max(relative_errors(program, subject).values()) <= 1e-5
