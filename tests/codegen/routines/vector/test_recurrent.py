"""Recurrent layers of awkward sizes: the loop computes what ONNX Runtime does, and the kernel what the loop does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto

import sartor.backend
from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.vector.recurrent import Recurrent
from sartor.frontend.imported_model import ImportedModel
from sartor.reference.random_inputs import sample_inputs
from tests.codegen.routines.harness import Subject, compiled, opened, relative_errors
from tests.codegen.routines.harness import run as run_layer
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, Value, model, node, relative_error, run, weights
from tests.thorough import in_turns

_INPUTS = 7
_TOLERANCE = 1e-5
_TARGET = Target.create("cpu")
_ONE_THREAD = replace(_TARGET, threads=1)
# Operator, steps, width of the state, batch, attributes.
_LAYERS: dict[str, tuple[str, int, int, int, dict[str, Any]]] = {
    "lstm": ("LSTM", 5, 19, 1, {"direction": "bidirectional"}),
    "lstm_batch": ("LSTM", 4, 8, 3, {"direction": "reverse", "activations": ["Sigmoid", "Relu", "Tanh"]}),
    "gru": ("GRU", 3, 37, 3, {"direction": "bidirectional"}),
    "gru_linear": ("GRU", 5, 24, 2, {"direction": "reverse", "linear_before_reset": 1}),
    "one_step": ("LSTM", 1, 16, 1, {}),
    "many_steps": ("GRU", 60, 96, 1, {"linear_before_reset": 1}),
    "rnn": ("RNN", 5, 5, 1, {"activations": ["Relu"]}),
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _layers() -> ModelProto:
    """One model of all layers, each with initial states, and all of its results as outputs."""
    nodes: list[NodeProto] = []
    inputs: list[Value] = []
    outputs: list[Value] = []
    constants = {}
    for name, (operator, steps, hidden, batch, options) in _LAYERS.items():
        directions, gates = (2 if options.get("direction") == "bidirectional" else 1), _GATES[operator]
        states = ("h", "c") if operator == "LSTM" else ("h",)
        inputs.append((f"{name}.x", (steps, batch, _INPUTS), FLOAT))
        inputs += [(f"{name}.{each}", (directions, batch, hidden), FLOAT) for each in states]
        shapes = {"w": (gates * hidden, _INPUTS), "r": (gates * hidden, hidden), "b": (2 * gates * hidden,)}
        for seed, (part, shape) in enumerate(shapes.items()):
            # Larger ones make a state that doubles rounding errors in every step.
            constants[f"{name}.{part}"] = weights(directions, *shape, seed=seed, scale=min(0.4, 4 / hidden))
        read = [f"{name}.{each}" for each in ("x", "w", "r", "b", "", *states)]
        read[4] = ""
        written = [f"{name}.{each}" for each in ("y", "last", "memory")[: 1 + len(states)]]
        state = (directions, batch, hidden)
        outputs += [(each, state if index else (steps, *state), FLOAT) for index, each in enumerate(written)]
        nodes.append(node(operator, read, written, name=name, hidden_size=hidden, **options))
    return model(nodes, inputs, outputs, constants)


@pytest.fixture(scope="module")
def built() -> ModelProto:
    return _layers()


@pytest.fixture(scope="module")
def imported(built: ModelProto) -> ImportedModel:
    return imported_model(built)


def test_loops_compute_what_onnx_runtime_computes(built: ModelProto) -> None:
    feeds = sample_inputs(built, 1)
    expected = run(built, feeds)
    actual = sartor.backend.prepare(built).run([feeds[each.name] for each in built.graph.input])
    for output, found in zip(built.graph.output, actual, strict=True):
        assert relative_error(np.asarray(found), expected[output.name]) <= _TOLERANCE, output.name


def test_kernels_compute_what_loops_compute(imported: ImportedModel, pytestconfig: pytest.Config) -> None:
    subjects: dict[str, Subject] = {}
    for layer in imported.graph.layers:
        if layer.task.kind is LayerKind.RECURRENCE:
            stock = Stock().build(layer.task, {}, _TARGET)
            assert isinstance(stock, Implementation)
            found: dict[str, Implementation | Rejected] = {}
            parameters = choices_of(Recurrent(), layer.task, _TARGET)
            assert not isinstance(parameters, Rejected), parameters
            for each in (
                *parameters,
                *({**parameter, "shares": count} for parameter in parameters for count in (2, 3)),
            ):
                found[str(dict(each))] = Recurrent().build(layer.task, each, _TARGET)
            built = {name: code for name, code in found.items() if isinstance(code, Implementation)}
            assert len(built) == len(found)
            tried = in_turns(built, len(subjects), pytestconfig)
            subjects[layer.name] = Subject(layer, imported.weights, {"stock": stock, **tried})
    # One for each direction.
    assert len(subjects) == 9
    content = compiled(subjects, _TARGET)
    # A single thread runs one workgroup after the other.
    for threads in (1, 2, 3):
        program = opened(content, _TARGET, threads)
        for name, subject in subjects.items():
            errors = relative_errors(program, subject)
            assert max(errors.values()) <= _TOLERANCE, (name, threads, errors)


def test_workgroups_that_share_steps_compute_the_same_numbers_whenever_they_run(imported: ImportedModel) -> None:
    subjects = {}
    for layer in imported.graph.layers:
        if layer.task.kind is LayerKind.RECURRENCE:
            listed = choices_of(Recurrent(), layer.task, _ONE_THREAD)
            assert not isinstance(listed, Rejected)
            given = {**listed[0], "rows": 1}
            batch = _LAYERS[layer.name.partition("/")[0]][3]
            built = {(1, 1): Recurrent().build(layer.task, given, _TARGET)}
            for groups, shares in ((1, 2), (1, 3), (batch, 2)):
                parameters = {**given, "groups": groups, "shares": shares}
                built[groups, shares] = Recurrent().build(layer.task, parameters, _TARGET)
            codes = {str(each): code for each, code in built.items() if isinstance(code, Implementation)}
            assert len(codes) == len(built)
            subjects[layer.name] = Subject(layer, imported.weights, codes)
    content = compiled(subjects, _TARGET)
    for threads, repeats in ((1, 2), (2, 20), (3, 60)):
        program = opened(content, _TARGET, threads)
        for name, subject in subjects.items():
            inputs = subject.inputs()
            expected = run_layer(program, subject, "(1, 1)", inputs)
            for shared in subject.implementations:
                for _ in range(repeats):
                    assert np.array_equal(run_layer(program, subject, shared, inputs), expected), (name, shared)


@pytest.mark.parametrize("architecture", ["x86-64-v3", "aarch64:generic", "aarch64:neoverse-n1"])
def test_shared_steps_compile_for_other_cpus(imported: ImportedModel, architecture: str) -> None:
    target = replace(Target.create("cpu", architecture), threads=4)
    layer = next(each for each in imported.graph.layers if each.name.startswith("many_steps") and _recurs(each))
    listed = choices_of(Recurrent(), layer.task, target)
    assert not isinstance(listed, Rejected)
    assert {each.get("shares", 1) for each in listed} >= {1, 2, 4}
    built = Recurrent().build(layer.task, {**listed[0], "shares": 4}, target)
    assert isinstance(built, Implementation)
    assert compiled({"layer": Subject(layer, imported.weights, {"shared": built})}, target)


def _recurs(layer: Layer) -> bool:
    return layer.task.kind is LayerKind.RECURRENCE


def test_workgroups_that_would_leave_rows_out_are_refused(imported: ImportedModel) -> None:
    task = next(layer.task for layer in imported.graph.layers if layer.name.startswith("gru") and _recurs(layer))
    given = {"vectors": 1, "unroll": 1, "rows": 1, "groups": 1, "shares": 1}
    uneven = {"groups": 2}, {"rows": 2}, {"groups": 3, "rows": 3}, {"unroll": 2}
    for wrong in (*uneven, {"groups": 0}, {"shares": 0}, {"rows": 0}):
        assert isinstance(Recurrent().build(task, {**given, **wrong}, _TARGET), Rejected), wrong
    assert isinstance(Recurrent().build(task, given, _TARGET), Implementation)


def test_steps_are_shared_where_threads_are_left(imported: ImportedModel) -> None:
    layers = {layer.name: layer.task for layer in imported.graph.layers if layer.task.kind is LayerKind.RECURRENCE}

    def shares(name: str, threads: int) -> set[object]:
        found = choices_of(Recurrent(), layers[name], replace(_TARGET, threads=threads))
        assert not isinstance(found, Rejected)
        return {each.get("shares", 1) for each in found}

    (wide, *_) = (name for name in layers if name.startswith("gru") and "linear" not in name)
    (alone, *_) = (name for name in layers if name.startswith("lstm") and "batch" not in name)
    assert shares(alone, 1) == {1}
    assert shares(alone, 2) == {1, 2}
    # Three rows keep three threads busy.
    assert shares(wide, 3) == {1}


def test_other_layers_are_rejected(imported: ImportedModel) -> None:
    product = next(layer.task for layer in imported.graph.layers if layer.task.kind is LayerKind.CONTRACTION)
    assert choices_of(Recurrent(), product, _TARGET) == Rejected("not a recurrent layer")


def _computed_weights() -> ModelProto:
    """IREE's own loop of a layer whose weights are inputs; only its last state is an output."""
    gru = node("GRU", ["x", "w", "r"], ["", "last"], name="gru", hidden_size=5)
    shapes = {"x": (300, 2, 3), "w": (1, 15, 3), "r": (1, 15, 5)}
    return model([gru], [(name, shape, FLOAT) for name, shape in shapes.items()], [("last", (1, 2, 5), FLOAT)], {})


def test_other_loops_are_rejected() -> None:
    found = imported_model(_computed_weights())
    loops = [layer.task for layer in found.graph.layers if "scf.for" in layer.task.body]
    assert loops
    assert all(isinstance(choices_of(Recurrent(), loop, _TARGET), Rejected) for loop in loops)


def test_a_matrix_that_is_read_elsewhere_is_not_packed(tmp_path: Path) -> None:
    """It is the initial state too, of as many rows as the state has elements."""
    constants = {"w": weights(1, 4, _INPUTS), "r": weights(1, 4, 4, seed=1)}
    rnn = node("RNN", ["x", "w", "r", "", "", "h"], ["y"], name="rnn", hidden_size=4)
    onnx.save(
        model([rnn], [("x", (3, 4, _INPUTS), FLOAT), ("h", (1, 4, 4), FLOAT)], ["y"], constants), tmp_path / "m.onnx"
    )
    found = imported_model(tmp_path / "m.onnx")
    task = next(layer.task for layer in found.graph.layers if layer.task.kind is LayerKind.RECURRENCE)
    shared = replace(task, body=task.body.replace("= %arg0,", "= %arg2,"))
    parameters = choices_of(Recurrent(), shared, _TARGET)
    assert not isinstance(parameters, Rejected), parameters
    assert isinstance(Recurrent().build(task, parameters[0], _TARGET), Implementation)
    built = Recurrent().build(shared, parameters[0], _TARGET)
    assert built == Rejected("a recurrence matrix is computed or read elsewhere too")
