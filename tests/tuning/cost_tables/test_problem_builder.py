"""From measurements to a selection problem, and what pins leave of it."""

from __future__ import annotations

import pytest

from benchmarks.selection.exhaustive import select
from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.errors import InfeasibleError
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.pin import Pin
from tests.importing import ImportedOf

TARGET = Target.create("cpu")


def measurement(descriptor: str, seconds: float, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("task", descriptor, "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, status, (seconds,) if status is Status.OK else (), message=f"{descriptor} is {status}")


@pytest.fixture(scope="module")
def tables(imported_of: ImportedOf) -> Tables:
    """Stock is slow, the first other variant of each task fast, all others failed."""
    variants = list_candidates(imported_of("residual").graph, routines_for(()), TARGET).variants
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


def test_only_what_works_is_a_choice(imported_of: ImportedOf, tables: Tables) -> None:
    problem = selection_problem(imported_of("residual").graph, tables, "cpu", Objective.LATENCY)
    assert [len(node.choices) for node in problem.nodes] == [1, 2, 2, 1]
    assert problem.nodes[0].name == "input:x"
    assert problem.nodes[-1].name == "output:y"


def test_pins_restrict_the_layers_they_name(imported_of: ImportedOf, tables: Tables) -> None:
    graph = imported_of("residual").graph
    pinned = selection_problem(graph, tables, "cpu", Objective.LATENCY, (Pin("conv1", "*stock"),))
    assert [len(node.choices) for node in pinned.nodes] == [1, 1, 2, 1]
    with pytest.raises(InfeasibleError, match=r"'conv2' fits its pins, it has cpu:f32/conv2d\.stock"):
        selection_problem(graph, tables, "cpu", Objective.LATENCY, (Pin("*2", "gpu:*"),))


def test_a_layer_without_any_routine_says_why(imported_of: ImportedOf, tables: Tables) -> None:
    failed = {
        key: {name: measurement(name, 0, Status.CRASHED) for name in listed} for key, listed in tables.measured.items()
    }
    with pytest.raises(InfeasibleError, match=r"layer 'conv1' works: cpu:f32/conv2d\.stock is crashed"):
        selection_problem(imported_of("residual").graph, Tables(tables.variants, failed), "cpu", Objective.LATENCY)


def test_the_cheapest_choice_is_the_measured_one(imported_of: ImportedOf, tables: Tables) -> None:
    problem = selection_problem(imported_of("residual").graph, tables, "cpu", Objective.LATENCY)
    selection = select(problem)
    assert not any(selection.choices[name].name.endswith("stock") for name in ("conv1", "conv2"))
