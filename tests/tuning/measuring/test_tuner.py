"""Tuning variants that fail in every way a variant can."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing, Step
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.errors import SartorError
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.measuring.tuner import Tuner, TuneSettings
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.store.bad_steps import (
    AbortWhileCompiling,
    AbortWhileMeasuring,
    FullWhileCompiling,
    KilledWhileMeasuring,
)

TENSOR = TensorType((16,), "f32")
SCHEMA = Schema.plain(TENSOR, "cpu")
# Nothing is hopeless: on a disturbed machine candidate 0 might look so, and be timed in fewer rounds.
MEASURE = MeasureSettings("cpu", 1, 1e-3, rounds=3, seconds=0.2, hopeless=math.inf)
SETTINGS = TuneSettings(Target.create("cpu"), MEASURE)
GOOD = ("stock", "other")
BODY = """util.func public @layer(%arg0: tensor<16xf32>, %arg1: tensor<16xf32>) -> tensor<16xf32> {{
  %empty = tensor.empty() : tensor<16xf32>
  %out = linalg.generic {{iterator_types = ["parallel"],
      indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>]}}
      ins(%arg0, %arg1 : tensor<16xf32>, tensor<16xf32>) outs(%empty : tensor<16xf32>) {{
  ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.{op} %a, %b : f32
    linalg.yield %r : f32
  }} -> tensor<16xf32>
  util.return %out : tensor<16xf32>
}}"""


def variant(descriptor: str, body: str, *steps: Step) -> Variant:
    return Variant(descriptor, "cpu", "f32", Implementation(body, (SCHEMA,), (SCHEMA,), (Packing(steps),)))


def case(*variants: Variant, key: str = "task") -> BenchmarkCase:
    return BenchmarkCase(key, (TENSOR,), (TENSOR,), (TENSOR,), variants)


ADD = BODY.format(op="addf")
CASE = case(
    variant("stock", ADD),
    variant("no code", BODY.format(op="no_such_op")),
    variant("wrong", BODY.format(op="subf")),
    variant("compiler crash", ADD, AbortWhileCompiling()),
    variant("crash", ADD, AbortWhileMeasuring()),
    variant("other", ADD.replace("%out", "%sum")),
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.in_memory() as opened:
        yield opened


@pytest.fixture(scope="module")
def measured(store: Store, pool: WorkerPool) -> dict[str, Measurement]:
    return Tuner(store, pool, SETTINGS, lambda *_: None).measure([CASE])[CASE.key]


def test_every_failure_is_recorded_as_what_it_is(measured: dict[str, Measurement]) -> None:
    assert {name: each.status for name, each in measured.items()} == {
        "stock": Status.OK,
        "no code": Status.COMPILE_FAILED,
        "wrong": Status.WRONG_RESULT,
        "compiler crash": Status.CRASHED,
        "crash": Status.CRASHED,
        "other": Status.OK,
    }


def test_failures_say_why(measured: dict[str, Measurement]) -> None:
    assert "no_such_op" in measured["no code"].message
    assert "stock" in measured["wrong"].message
    assert all(each.message for name, each in measured.items() if name not in GOOD)


def test_the_rest_is_measured_against_candidate_0(measured: dict[str, Measurement]) -> None:
    assert measured["stock"].baseline_samples == ()
    assert len(measured["other"].baseline_samples) >= 3
    assert measured["other"].error == 0
    assert measured["other"].packed_bytes == TENSOR.bytes


def test_what_ends_the_compiler_is_found_among_the_cases_of_a_batch(pool: WorkerPool) -> None:
    good, bad = variant("stock", ADD), variant("compiler crash", ADD, AbortWhileCompiling())
    cases = [case(good, key="beside it"), case(good, bad, key="with it")]
    with Store.in_memory() as store:
        found = Tuner(store, pool, SETTINGS, lambda *_: None).measure(cases)
    assert {name: each.status for name, each in found["beside it"].items()} == {"stock": Status.OK}
    statuses = {name: each.status for name, each in found["with it"].items()}
    assert statuses == {"stock": Status.OK, "compiler crash": Status.CRASHED}


class IdlePool(WorkerPool):
    """A pool that no job may reach."""

    def map_unordered(self, *_: object, **__: object) -> Iterator[object]:  # type: ignore[override]
        raise AssertionError("a job was started")


def test_what_is_known_is_not_measured_again(store: Store, measured: dict[str, Measurement]) -> None:
    tuner = Tuner(store, IdlePool(1), SETTINGS, lambda *_: None)
    assert tuner.measure([CASE])[CASE.key] == measured
    with pytest.raises(AssertionError, match="a job was started"):
        tuner.measure([case(variant("stock", BODY.format(op="mulf")))])


def test_a_broken_candidate_0_is_blamed_alone(store: Store, pool: WorkerPool) -> None:
    broken = case(variant("stock", ADD, AbortWhileCompiling()), key="broken")
    found = Tuner(store, pool, SETTINGS, lambda *_: None).measure([broken])
    assert found["broken"]["stock"].status is Status.CRASHED


def tuned(path: Path, pool: WorkerPool, *variants: Variant) -> dict[str, Measurement]:
    """What a compilation with the database at ``path`` finds out."""
    with Store.open(path) as store:
        return Tuner(store, pool, SETTINGS, lambda *_: None).measure([case(*variants)])["task"]


@pytest.mark.parametrize("step", [KilledWhileMeasuring, FullWhileCompiling])
def test_what_was_disturbed_is_tried_again_in_the_same_compilation(
    tmp_path: Path, pool: WorkerPool, step: type[KilledWhileMeasuring | FullWhileCompiling]
) -> None:
    disturbed = variant("other", ADD.replace("%out", "%sum"), step(str(tmp_path / "marker"), once=True))
    found = tuned(tmp_path / "t.db", pool, variant("stock", ADD), disturbed)
    assert {name: each.status for name, each in found.items()} == {"stock": Status.OK, "other": Status.OK}


def test_a_single_variant_is_measured_once_more_by_itself(tmp_path: Path, pool: WorkerPool) -> None:
    """What it was compiled or measured beside may have ended the worker."""
    disturbed = variant("stock", ADD, KilledWhileMeasuring(str(tmp_path / "marker"), once=True))
    assert tuned(tmp_path / "t.db", pool, disturbed)["stock"].status is Status.OK


def test_what_was_disturbed_twice_is_tried_again_by_the_next_compilation(tmp_path: Path, pool: WorkerPool) -> None:
    marker = tmp_path / "marker"
    stock = variant("stock", ADD)
    disturbed = variant("other", ADD.replace("%out", "%sum"), KilledWhileMeasuring(str(marker), once=False))
    found = tuned(tmp_path / "t.db", pool, stock, disturbed)
    assert {name: each.status for name, each in found.items()} == {"stock": Status.OK, "other": Status.KILLED}
    marker.touch()
    found = tuned(tmp_path / "t.db", pool, stock, disturbed)
    assert {name: each.status for name, each in found.items()} == {"stock": Status.OK, "other": Status.OK}


def test_a_disk_that_stays_full_ends_the_compilation_and_is_no_verdict(tmp_path: Path, pool: WorkerPool) -> None:
    marker = tmp_path / "marker"
    stock = variant("stock", ADD)
    disturbed = variant("other", ADD.replace("%out", "%sum"), FullWhileCompiling(str(marker), once=False))
    with pytest.raises(SartorError, match="no room on the disk"):
        tuned(tmp_path / "t.db", pool, stock, disturbed)
    marker.touch()
    found = tuned(tmp_path / "t.db", pool, stock, disturbed)
    assert {name: each.status for name, each in found.items()} == {"stock": Status.OK, "other": Status.OK}


def test_stored_errors_are_judged_by_what_each_compilation_allows(
    store: Store, pool: WorkerPool, measured: dict[str, Measurement]
) -> None:
    error = measured["wrong"].error
    assert error is not None
    lenient = replace(SETTINGS, measure=replace(MEASURE, max_error=2 * error))
    tuner = Tuner(store, pool, lenient, lambda *_: None)
    assert "wrong" not in tuner.known([CASE])[CASE.key], "it has no time, and may be taken"
    apart = case(CASE.variants[0], CASE.variants[2])
    assert tuner.measure([apart])[CASE.key]["wrong"].status is Status.OK
    strict = Tuner(store, IdlePool(1), SETTINGS, lambda *_: None).measure([apart])[CASE.key]["wrong"]
    assert strict.status is Status.WRONG_RESULT
    assert "allowed is 0.001" in strict.message
