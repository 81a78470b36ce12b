"""The audit draws what fits the registers, keeps its draws, and notices a better variant than those listed."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import onnx

from benchmarks.tile_space import changed, drawn, kernels, row_of
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, variant_of, variants_of
from sartor.codegen.routines import FUSED_ROUTINES, ROUTINES
from sartor.codegen.routines.vector.window import SlidingWindow
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from tests.plugin.onnx_model.builders import FLOAT, model, node

LISTED = [
    {"lines": 1, "columns": 14, "vectors": 2, "row_groups": 14, "panel_groups": 1, "unroll": 1},
    {"lines": 2, "columns": 7, "vectors": 2, "row_groups": 1, "panel_groups": 80, "unroll": 2},
]
TENSOR = TensorType((4,), "f32")


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


def variant(number: int) -> Variant:
    schema = Schema.plain(TENSOR, "cpu")
    return Variant(f"v{number}", "cpu", "f32", Implementation("", (schema,), (schema,), ()), routine="direct")


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


def test_routines_are_those_that_made_the_variants(tmp_path: Path) -> None:
    """A pooling that stores its result in f16 has the name of the one in f32."""
    onnx.save(
        model([node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], [("x", (1, 16, 6, 6), FLOAT)], ["y"], {}),
        tmp_path / "m.onnx",
    )
    found = run_import(tmp_path / "m.onnx", {}, None)
    assert isinstance(found, ImportedModel)
    (layer,) = found.graph.layers
    target = Target.create("cpu")
    variants = [each for each in variants_of(SlidingWindow(), layer.task, target) if isinstance(each, Variant)]
    assert sum(each.name == "window" for each in (*ROUTINES, *FUSED_ROUTINES)) > 1
    ((routine, listed),) = kernels(layer.task, variants, target)
    made = [variant_of(routine, layer.task, each, target) for each in listed]
    assert [each.descriptor for each in made if isinstance(each, Variant)] == [each.descriptor for each in variants]
