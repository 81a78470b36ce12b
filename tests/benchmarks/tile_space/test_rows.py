"""The audit notices a better variant than those listed, and does not take a wrong one for it."""

from __future__ import annotations

from benchmarks.tile_space.__main__ import is_ragged, row_of
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status

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
