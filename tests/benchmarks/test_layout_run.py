"""The steps of NeoCPU's table 3 as networks that run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.selection import layout_run
from benchmarks.selection.layouts import CONVOLUTIONS
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from tests.importing import ImportedOf

TARGET = Target.create("cpu")


@pytest.fixture(scope="module")
def graph(imported_of: ImportedOf) -> LayerGraph:
    return imported_of("residual").graph


@pytest.fixture(scope="module")
def tables(graph: LayerGraph) -> Tables:
    """Stock code takes twice as long as with channels last."""
    variants = list_candidates(graph, (Stock(), ChannelsLast()), TARGET).variants

    def measured(task: str, name: str, seconds: float) -> Measurement:
        key = MeasurementKey(task, name, "source", "hardware", 1, "runtime", "cpu")
        return Measurement(key, Status.OK, (seconds,), (2.0,))

    return Tables(
        variants,
        {
            key: {each.descriptor: measured(key, each.descriptor, 2.0 - index) for index, each in enumerate(found)}
            for key, found in variants.items()
        },
    )


def test_every_convolution_hands_on_to_a_layer_in_plain_layout(graph: LayerGraph) -> None:
    held = layout_run.with_seams(graph)
    names = [layer.name for layer in held.layers]
    convolutions = [layer.name for layer in graph.layers if layer.task.kind in CONVOLUTIONS]
    assert len(names) == len(graph.layers) + len(convolutions)
    for name in convolutions:
        seam = held.layers[names.index(name) + 1]
        assert seam.inputs == (ValueRef(name, 0),)
        assert seam.task.inputs == seam.task.results
    seams = set(names) - {layer.name for layer in graph.layers}
    readers = [layer for layer in held.layers if layer.name not in seams]
    assert {ref.source for layer in readers for ref in layer.inputs} <= {None, *seams}
    assert [output.name for output in held.outputs] == [output.name for output in graph.outputs]


def test_fewer_candidates_keep_their_times(graph: LayerGraph, tables: Tables) -> None:
    fewer = layout_run.restricted(tables, graph, lambda _, found: found[-1:])
    for key in graph.tasks():
        (variant,) = fewer.variants[key]
        assert variant.descriptor.endswith(".nhwc")
        assert fewer.seconds(key, variant.descriptor) == tables.seconds(key, variant.descriptor) == 1.0


def test_seams_take_no_time(graph: LayerGraph, tables: Tables) -> None:
    held = layout_run.with_seams(graph)
    timed = layout_run.with_seam_times(tables, held, CompileConfig(target=TARGET, threads=1))
    for layer in held.layers:
        (first, *_) = timed.variants[layer.task.key]
        seconds = timed.seconds(layer.task.key, first.descriptor)
        assert seconds == pytest.approx(2.0 if layer.task.kind in CONVOLUTIONS else 0.0)


def test_all_steps_run_and_are_right(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    config = CompileConfig(target=TARGET, threads=1, jobs=2, database=tmp_path / "tuning.db")
    rows = layout_run.run(model_file("residual"), config, seconds=0.01)
    assert [row.step for row in rows] == [
        "baseline",
        "layout",
        "transform elimination",
        "channels last",
        "global search",
    ]
    assert all(row.error < 1e-4 and row.measured > 0 for row in rows)
    by_step = {row.step: row for row in rows}
    assert by_step["baseline"].conversions == 0
    assert by_step["baseline"].faster == 1.0
    assert by_step["global search"].predicted <= min(row.predicted for row in rows)
