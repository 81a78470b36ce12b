"""Two tasks as one: whose arguments come where, and that nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.ir.layer import Layer, LayerKind, Stage, Task, TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.subgraphs.fusion import fuse
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Found, Subject, layers, load, run
from tests.tiny_models import Builder

TARGET = Target.create("cpu")


def _operands() -> ModelProto:
    """A window to which something is added, and products whose results something is added to or multiplied with."""
    b, image = Builder(), (1, 8, 5, 6)
    names = ("x", "a", "b", "c")
    first = b.op("Add", "first.sum", b.conv("first", "x", (8, 8), group=8), "a")
    second = b.conv("second", first, (8, 8), kernel=1)
    b.op("Mul", "y", b.op("Add", "second.sum", second, "b"), "c")
    third = b.op("Conv", "third", "x", b.weight(8, 8, 1, 1))
    b.op("HardSwish", "z", b.op("Add", "third.sum", third, "a"))
    return b.model([(name, image) for name in names], [("y", image), ("z", image)])


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"operands": _operands})}


def _task(found: Found, name: str) -> Task:
    return found[name][0].task


def test_arguments_are_those_of_the_first_then_the_others_of_the_second(found: Found) -> None:
    first, second = _task(found, "first"), _task(found, "second")
    assert (len(first.inputs), len(first.weights)) == (2, 2)
    assert (len(second.inputs), len(second.weights)) == (3, 2)
    for slot in range(3):
        fused = fuse(first, second, slot)
        others = iter((2, 3))
        read = tuple(None if index == slot else next(others) for index in range(3))
        assert fused.stages == (Stage(first, (0, 1)), Stage(second, read))
        assert fused.inputs == (*first.inputs, *[each for index, each in enumerate(second.inputs) if index != slot])
        assert fused.weights == (*first.weights, *second.weights)
        assert fused.results == second.results
        assert fused.kind is LayerKind.FUSED


def test_keys_tell_fused_tasks_apart(found: Found) -> None:
    first, second, third = (_task(found, name) for name in ("first", "second", "third"))
    pairs = [(first, second, 0), (first, second, 1), (first, second, 2), (first, third, 0), (second, third, 0)]
    fused = [fuse(*pair) for pair in pairs]
    keys = {each.key for each in (*fused, first, second, third)}
    assert len(keys) == len(pairs) + 3
    assert [fuse(*pair) for pair in pairs] == fused


def test_a_fused_task_counts_the_operations_of_both(found: Found) -> None:
    first, second = _task(found, "first"), _task(found, "second")
    counts = operation_count(first), operation_count(second)
    assert counts == (2 * 8 * 5 * 6 * 9, 2 * 8 * 8 * 5 * 6)
    assert operation_count(fuse(first, second, 0)) == sum(counts)


def test_fusing_may_go_on(found: Found) -> None:
    """A fused task is one like any other."""
    first, second, third = (_task(found, name) for name in ("first", "second", "third"))
    fused = fuse(fuse(first, second, 1), third, 0)
    assert len(fused.inputs) == len(first.inputs) + len(second.inputs) + len(third.inputs) - 2
    assert fused.body.count("linalg.depthwise_conv") == 1
    assert fused.body.count("linalg.conv_2d") == 2


def _stock(task: Task) -> dict[str, Implementation]:
    built = Stock().build(task, {}, TARGET)
    assert isinstance(built, Implementation)
    return {"stock": built}


@pytest.fixture(scope="module")
def subjects(found: Found) -> dict[str, Subject]:
    """Both tasks, and both as one by each of the slots."""
    (first, weights), (second, _) = found["first"], found["second"]
    fused = [
        Layer(f"slot{slot}", (), fuse(first.task, second.task, slot), (), (*first.weights, *second.weights))
        for slot in range(len(second.task.inputs))
    ]
    return {each.name: Subject(each, weights, _stock(each.task)) for each in (first, second, *fused)}


def _random(types: Sequence[TensorType], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(each.shape).astype(each.numpy_dtype) for each in types]


def test_a_fused_task_computes_what_both_compute_in_turn(subjects: dict[str, Subject]) -> None:
    program = load(subjects, TARGET)
    first, second = subjects["first"], subjects["second"]
    results = []
    for slot in range(len(second.task.inputs)):
        given = _random(first.task.inputs, seed=slot)
        others = _random(second.task.inputs[1:], seed=10 + slot)
        between = run(program, first, "stock", given)
        expected = run(program, second, "stock", [*others[:slot], between, *others[slot:]])
        found = run(program, subjects[f"slot{slot}"], "stock", [*given, *others])
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
        results.append(found)
    assert not np.allclose(results[0], results[1], atol=0.1)
