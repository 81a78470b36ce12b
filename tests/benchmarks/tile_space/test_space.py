"""The space of tiles holds what was listed, draws fit it, and the audit notices a better variant."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

from benchmarks.tile_space.__main__ import is_ragged, row_of
from benchmarks.tile_space.draws import changed, drawn
from benchmarks.tile_space.space import Space, is_numbered, width_of
from sartor.codegen.ir.layer import Layer, LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import FUSED_ROUTINES, ROUTINES
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.window import SlidingWindow
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, model, node

TARGET = Target.create("cpu")


def layer_of(path: Path, op: onnx.NodeProto, channels: int, weights: dict[str, np.ndarray]) -> Layer:
    onnx.save(model([op], [("x", (1, channels, 6, 6), FLOAT)], ["y"], weights), path / "m.onnx")
    found = imported_model(path / "m.onnx")
    (layer,) = found.graph.layers
    return layer


def convolution(path: Path, channels: int) -> Layer:
    filters = np.ones((channels, channels, 3, 3), np.float32)
    return layer_of(path, node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), channels, {"w": filters})


def test_routines_are_those_that_made_the_variants(tmp_path: Path) -> None:
    """A pooling that stores its result in f16 has the name of the one in f32."""
    layer = layer_of(tmp_path, node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), 16, {})
    variants = [variant for variant in variants_of(SlidingWindow(), layer.task, TARGET) if isinstance(variant, Variant)]
    assert sum(each.name == "window" for each in (*ROUTINES, *FUSED_ROUTINES)) > 1
    space = Space(layer.task, TARGET)
    ((routine, listed),) = space.kernels(variants)
    made = [space.make(routine, each) for each in listed]
    assert [each.descriptor for each in made if each is not None] == [variant.descriptor for variant in variants]


def test_narrower_blocks_divide_what_wider_ones_do_not(tmp_path: Path) -> None:
    layer = convolution(tmp_path, 12)
    found: dict[str, list[Variant]] = {}
    for variant in Space(layer.task, TARGET, (2, 4)).of_other_widths():
        found.setdefault(variant.routine, []).append(variant)
    assert {"direct_by_2", "direct_by_4", "direct_blocked_by_2", "direct_blocked_by_4"} <= found.keys()
    assert {each.implementation.output.layout for each in found["direct_blocked_by_4"]} == {"nchw4c"}
    assert all(width_of(each) in (2, 4) and is_numbered(each) for name in found for each in found[name])
    assert not any("f16" in name or "i8" in name for name in found)
    space = Space(layer.task, TARGET, (4,))
    ((routine, listed),) = space.kernels(found["direct_blocked_by_4"])
    assert (routine.name, len(listed)) == ("direct_blocked_by_4", len(found["direct_blocked_by_4"]))


def test_the_width_of_a_routine_of_the_cpu_is_none(tmp_path: Path) -> None:
    layer = convolution(tmp_path, 12)
    plain = [variant for variant in variants_of(Direct(), layer.task, TARGET) if isinstance(variant, Variant)]
    assert plain
    assert {width_of(each) for each in plain} == {None}


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("factor", [0.25, 0.5, 2])
def test_a_machine_of_another_width_holds_no_more_in_its_registers(factor: float, level: str) -> None:
    whole = machine_of(Target.create("cpu", level))
    lanes = int(factor * whole.lanes)
    other = whole.with_lanes(lanes)
    assert (other.lanes, other.core.lanes) == (lanes, lanes)
    assert other.registers * max(1, lanes // whole.lanes) <= whole.registers
    assert other.core.operations_per_cycle <= whole.core.operations_per_cycle * max(1, whole.core.lanes // whole.lanes)


TENSOR = TensorType((4,), "f32")


def variant(number: int, routine: str = "direct") -> Variant:
    schema = Schema.plain(TENSOR, "cpu")
    return Variant(f"v{number}", "cpu", "f32", Implementation("", (schema,), (schema,), ()), routine=routine)


def measured(number: int, seconds: float, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("task", f"v{number}", "source", "here", 1, "runtime", "cpu")
    return Measurement(key, status, (seconds,))


def test_what_the_list_loses_is_seen_and_wrong_results_do_not_win() -> None:
    listed = BenchmarkCase("task", (TENSOR,), (), (TENSOR,), (variant(0), variant(1)))
    wide = BenchmarkCase("task", (TENSOR,), (), (TENSOR,), tuple(map(variant, range(4))))
    known = {
        "v0": measured(0, 9e-6),
        "v1": measured(1, 2e-6),
        "v2": measured(2, 1.6e-6),
        "v3": measured(3, 1e-6, Status.WRONG_RESULT),
    }
    row = row_of("net", "layer", listed, wide, known)
    assert (round(row.loss), row.tried, row.wrong) == (25, 1, 1)
    less = {name: each for name, each in known.items() if name != "v2"}
    assert row_of("net", "layer", listed, wide, less).loss == 0


def test_the_best_of_each_width_is_told() -> None:
    listed = BenchmarkCase("task", (TENSOR,), (), (TENSOR,), (variant(0), variant(1)))
    others = variant(2, "direct_by_8"), variant(3, "direct_blocked_by_8"), variant(4, "direct_by_32")
    wide = BenchmarkCase("task", (TENSOR,), (), (TENSOR,), (*listed.variants, *others))
    known = {f"v{number}": measured(number, seconds) for number, seconds in enumerate((9e-6, 2e-6, 3e-6, 1e-6, 4e-6))}
    row = row_of("net", "layer", listed, wide, known)
    assert (row.widths, row.routine, round(row.loss)) == ("8: 1, 32: 4", "direct_blocked_by_8", 100)


def test_ragged_layers_have_channels_that_do_not_divide() -> None:
    def task(channels: int, wanted: int) -> Task:
        images = [TensorType((1, each, 5, 5), "f32") for each in (channels, wanted)]
        return Task("key", LayerKind.CONVOLUTION, "", (images[0],), (TensorType((24,), "f32"),), (images[1],))

    assert [is_ragged(task(*each), 16) for each in ((32, 16), (24, 16), (16, 24))] == [False, True, True]


LISTED = [
    {"lines": 1, "columns": 14, "vectors": 2, "row_groups": 14, "panel_groups": 1, "unroll": 1},
    {"lines": 2, "columns": 7, "vectors": 2, "row_groups": 1, "panel_groups": 80, "unroll": 2},
]


def test_draws_fit_the_registers_and_reach_beyond_the_list() -> None:
    rng = Random(1)
    found = [drawn(rng, LISTED) for _ in range(500)]
    assert all(each.keys() == LISTED[0].keys() and min(each.values()) >= 1 for each in found)
    assert all(math.prod(each[name] for name in ("lines", "columns", "vectors")) <= 32 for each in found)
    assert {each["vectors"] for each in found} > {1, 2, 3, 5, 8}
    assert max(each["panel_groups"] for each in found) > 80
    assert drawn(Random(7), LISTED) == drawn(Random(7), LISTED)


def test_a_change_is_of_one_number_unless_registers_run_out() -> None:
    rng = Random(2)
    given = {"lines": 1, "columns": 7, "vectors": 2, "row_groups": 14, "panel_groups": 1, "unroll": 1}
    for _ in range(200):
        other = changed(rng, given, LISTED)
        assert math.prod(other[name] for name in ("lines", "columns", "vectors")) <= 32
        outside = [name for name in ("row_groups", "panel_groups", "unroll") if other[name] != given[name]]
        assert len(outside) <= 1
