"""From measurements to a selection problem, and what pins leave of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sartor.codegen.routines import ROUTINES
from sartor.codegen.schema import Schema
from sartor.codegen.target import Target
from sartor.dialect_passes.annotate import annotate, annotated_module
from sartor.errors import InfeasibleError, UsageError
from sartor.front_job import Front
from sartor.tuning.cost import Objective
from sartor.tuning.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.exhaustive import select
from sartor.tuning.tables import Pin, Tables, adapt_seconds, adapts_between, selection_problem
from sartor.tuning.unit import AdaptKind

FrontOf = Callable[[str], Front]
TARGET = Target.create("cpu")


def measurement(descriptor: str, seconds: float, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("task", descriptor, "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, status, (seconds,) if status is Status.OK else (), message=f"{descriptor} is {status}")


@pytest.fixture(scope="module")
def tables(front_of: FrontOf) -> Tables:
    """Stock is slow, the first other variant of each task fast, all others failed."""
    variants = annotate(front_of("residual").graph, ROUTINES, TARGET).variants
    measured = {
        key: {
            each.descriptor: measurement(
                each.descriptor, 1e-3 / (1 + index), Status.OK if index < 2 else Status.CRASHED
            )
            for index, each in enumerate(listed)
        }
        for key, listed in variants.items()
    }
    return Tables(variants, measured)


def test_only_what_works_is_a_choice(front_of: FrontOf, tables: Tables) -> None:
    problem = selection_problem(front_of("residual").graph, tables, "cpu", Objective.LATENCY)
    assert [len(node.choices) for node in problem.nodes] == [1, 2, 2, 1]
    assert problem.nodes[0].name == "input:x"
    assert problem.nodes[-1].name == "output:y"


def test_pins_restrict_the_layers_they_name(front_of: FrontOf, tables: Tables) -> None:
    graph = front_of("residual").graph
    pinned = selection_problem(graph, tables, "cpu", Objective.LATENCY, (Pin("conv1", "*stock"),))
    assert [len(node.choices) for node in pinned.nodes] == [1, 1, 2, 1]
    with pytest.raises(InfeasibleError, match=r"'conv2' fits its pins, it has cpu:f32/conv2d\.stock"):
        selection_problem(graph, tables, "cpu", Objective.LATENCY, (Pin("*2", "gpu:*"),))


def test_a_layer_without_any_routine_says_why(front_of: FrontOf, tables: Tables) -> None:
    failed = {
        key: {name: measurement(name, 0, Status.CRASHED) for name in listed} for key, listed in tables.measured.items()
    }
    with pytest.raises(InfeasibleError, match=r"layer 'conv1' works: cpu:f32/conv2d\.stock is crashed"):
        selection_problem(front_of("residual").graph, Tables(tables.variants, failed), "cpu", Objective.LATENCY)


@pytest.mark.parametrize("text", ["conv1", "=x", "conv1=", ""])
def test_a_malformed_pin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no pin"):
        Pin.parse(text)


def test_a_pin_splits_at_the_first_equals_sign() -> None:
    assert Pin.parse("conv*=*tiled{depth=4}") == Pin("conv*", "*tiled{depth=4}")


def test_chosen_layouts_are_adapted_at_both_ends(front_of: FrontOf, tables: Tables) -> None:
    graph = front_of("residual").graph
    by_layout = {
        layer.name: next(each for each in tables.variants[layer.task.key] if each.implementation.output == "nhwc")
        for layer in graph.layers
    }
    found = [
        (str(edge), kind.source.layout, kind.target.layout) for edge, kind in adapts_between(graph, by_layout, "cpu")
    ]
    assert [each[1:] for each in found] == [("nchw", "nhwc"), ("nchw", "nhwc"), ("nhwc", "nchw")]
    assert "output:y" in found[-1][0]


def test_adapts_that_move_nothing_are_free(tables: Tables) -> None:
    nchw, nhwc = Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
    assert adapt_seconds(AdaptKind("tensor<1x16x1x1xf32>", nchw, nhwc), tables) == 0
    moved = AdaptKind("tensor<1x16x8x8xf32>", nchw, nhwc)
    assert 0 < adapt_seconds(moved, tables) < 1e-4
    assert adapt_seconds(moved, Tables(tables.variants, tables.measured, {moved: 0.5})) == 0.5


def test_the_cheapest_choice_is_the_measured_one(front_of: FrontOf, tables: Tables) -> None:
    problem = selection_problem(front_of("residual").graph, tables, "cpu", Objective.LATENCY)
    selection = select(problem)
    assert not any(selection.choices[name].name.endswith("stock") for name in ("conv1", "conv2"))


def test_rejections_and_candidates_can_be_read(front_of: FrontOf) -> None:
    graph = front_of("shuffle").graph
    candidates = annotate(graph, ROUTINES, TARGET)
    assert all(each.reason for each in candidates.rejections)
    assert all(listed[0].descriptor.endswith(".stock") for listed in candidates.variants.values())
    text = annotated_module(graph, candidates)
    assert text.count("sartor.candidates") == len(graph.layers)
