"""Conversions that a choice of variants needs, and times of transfers, measured once and stored."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.store.store import Store
from sartor.tuning.transfers import measured
from sartor.tuning.transfers.conversions import adapts_between, links_of
from sartor.tuning.transfers.times import TransferTimes
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf

TARGET = Target.create("cpu")


def test_chosen_layouts_are_adapted_at_both_ends(imported_of: ImportedOf) -> None:
    graph = imported_of("residual").graph
    variants = list_candidates(graph, routines_for(()), TARGET).variants
    by_layout = {
        layer.name: next(each for each in variants[layer.task.key] if each.implementation.output.layout == "nhwc")
        for layer in graph.layers
    }
    found = [
        (str(edge), kind.source.layout, kind.target.layout) for edge, kind in adapts_between(graph, by_layout, "cpu")
    ]
    assert [each[1:] for each in found] == [("nchw", "nhwc"), ("nchw", "nhwc"), ("nhwc", "nchw")]
    assert "output:y" in found[-1][0]


def test_each_use_of_a_value_is_an_edge(imported_of: ImportedOf) -> None:
    graph = imported_of("two_results").graph
    links = list(links_of(graph))
    assert len({link.edge for link in links}) == len(links)
    read = [pair for layer in graph.layers for pair in zip(layer.inputs, layer.task.inputs, strict=True)]
    given = [(output.source, output.type) for output in graph.outputs if output.source is not None]
    assert [(link.ref, link.logical) for link in links] == [*read, *given]


@pytest.mark.parametrize("name", ["residual", "separable", "split"])
def test_selection_knows_every_conversion_that_a_choice_needs(name: str, imported_of: ImportedOf) -> None:
    graph = imported_of(name).graph
    variants = list_candidates(graph, routines_for(["bf16", "i8"]), TARGET).variants
    known = selection_problem(graph, _tables(variants), "cpu", Objective.LATENCY).adapts
    for seed in range(5):
        draw = random.Random(seed)
        chosen = {layer.name: draw.choice(variants[layer.task.key]) for layer in graph.layers}
        for edge, kind in adapts_between(graph, chosen, "cpu"):
            assert (edge, kind.source, kind.target) in known


@pytest.mark.parametrize("name", ["residual", "two_results"])
def test_selection_charges_the_conversions_that_are_made_and_no_others(name: str, imported_of: ImportedOf) -> None:
    graph = imported_of(name).graph
    variants = list_candidates(graph, routines_for(["bf16", "i8"]), TARGET).variants
    tables = _tables(variants)
    problem = selection_problem(graph, tables, "cpu", Objective.LATENCY)
    for seed in range(5):
        draw = random.Random(seed)
        picked = {node.name: draw.choice(node.choices) for node in problem.nodes}
        chosen = {
            layer.name: next(each for each in variants[layer.task.key] if each.descriptor == picked[layer.name].name)
            for layer in graph.layers
        }
        made = {edge: adapt_seconds(kind, tables) for edge, kind in adapts_between(graph, chosen, "cpu")}
        for edge in problem.edges:
            needed = picked[edge.consumer].inputs[edge.slot]
            charged = problem.adapt(edge, picked[edge.producer].output, needed)
            assert charged is not None
            assert charged.latency == made.get(edge, 0.0), edge


def _tables(variants: Mapping[str, tuple[Variant, ...]]) -> Tables:
    """Every variant takes as long as any other."""
    key = MeasurementKey("task", "variant", "source", "hardware", 1, "runtime", "cpu")
    one = Measurement(key, Status.OK, (1e-3,))
    return Tables(variants, {task: {each.descriptor: one for each in found} for task, found in variants.items()})


@pytest.mark.parametrize(
    ("size", "seconds"),
    [(0, 10.0), (100, 10.0), (150, 11.0), (200, 12.0), (300, 16.0), (400, 20.0), (500, 24.0)],
)
def test_times_lie_on_lines_through_measured_sizes(size: int, seconds: float) -> None:
    times = TransferTimes.of({200: 12.0, 100: 10.0, 400: 20.0})
    assert times.seconds(size) == pytest.approx(seconds)


def test_one_size_stands_for_all() -> None:
    assert TransferTimes.of({100: 3.0}).seconds(10**9) == 3.0


def test_a_larger_tensor_takes_no_less_time() -> None:
    assert TransferTimes.of({1: 2.0, 10: 1.0, 20: 5.0}).points == ((1, 2.0), (10, 2.0), (20, 5.0))


MEASURED_TARGET = Target.joined([Target.create("cpu"), Target.create("vulkan")])


def test_transfers_beside_other_programs_are_stored_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[int]] = []

    def times(_pool: object, _function: object, job: dict[str, Any], *_: object, **_more: object) -> dict[int, Any]:
        asked.append(job["sizes"])
        return dict.fromkeys(job["sizes"], (1e-3, 2e-3))

    monkeypatch.setattr(measured, "call", times)
    pool = WorkerPool(1)
    loads = iter([9.0, 0.7, 9.0, 0.0])
    monkeypatch.setattr(pool, "take_others", lambda: next(loads))
    with Store.open(tmp_path / "t.db") as store:
        found = measured.measured_transfers(store, pool, MEASURED_TARGET)
        assert measured.measured_transfers(store, pool, MEASURED_TARGET) == found
        load = {
            (measurement.key.variant.rpartition(" to ")[0], measurement.foreign_load)
            for measurement in store.measurements()
        }
    assert len(asked) == 2, "times are stored"
    assert load == {("cpu", 0.7), ("vulkan", 0.0)}
