"""Which variants are right where candidate 0 may not be."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from sartor.codegen.analysis.integer_ranges import integer_ranges
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.checking import Arbiter
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.measuring.planted_arbiters import Adding, Counting, Ignorant, Unwanted
from tests.tuning.measuring.test_tuner import ADD, BODY, SETTINGS, case, variant
from tests.tuning.store.bad_steps import AbortWhileCompiling, AbortWhileMeasuring

STOCK, ONE, TWO = "cpu:f32/map.stock", "cpu:f32/map.one", "cpu:f32/map.two"
ONE_AGAIN = "cpu:f32/map.one{lines=2}"
WRONG = BODY.format(op="subf")
OTHERWISE_WRONG = BODY.format(op="mulf")
NO_CODE = BODY.format(op="no_such_op")
KNOWING, IGNORANT = Adding(16), Ignorant(16)
# Beside these weights an activation is nothing, and the larger of both is their sum.
BIG = Adding(16, 1e6)


def cases() -> dict[str, tuple[BenchmarkCase, Arbiter | None]]:
    """Units by name, each with its arbiter."""
    right = (variant(ONE, ADD), variant(TWO, ADD))
    planted: dict[str, tuple[tuple[Variant, ...], Arbiter | None]] = {
        "all agree": ((variant(STOCK, ADD), *right), Unwanted(16)),
        "wrong first": ((variant(STOCK, WRONG), variant(ONE, ADD)), KNOWING),
        "wrong first and another": ((variant(STOCK, WRONG), variant(ONE, OTHERWISE_WRONG)), KNOWING),
        "wrong routine": ((variant(STOCK, ADD), variant(ONE, WRONG), variant(TWO, WRONG)), KNOWING),
        "outvoted": ((variant(STOCK, WRONG), *right), IGNORANT),
        "backed": ((variant(STOCK, ADD), variant(ONE, ADD), variant(TWO, WRONG)), None),
        "one routine twice": ((variant(STOCK, ADD), variant(ONE, WRONG), variant(ONE_AGAIN, WRONG)), None),
        "no code": ((variant(STOCK, NO_CODE), variant(ONE, WRONG), variant(TWO, ADD)), KNOWING),
        "no code, alone": ((variant(STOCK, NO_CODE), variant(ONE, WRONG)), KNOWING),
        "no code, majority": ((variant(STOCK, NO_CODE), variant("cpu:f32/map.bad", WRONG), *right), None),
        "crash": ((variant(STOCK, ADD, AbortWhileMeasuring()), variant(ONE, WRONG), *right[1:]), KNOWING),
        "crash, majority": ((variant(STOCK, ADD, AbortWhileCompiling()), variant("map.bad", WRONG), *right), None),
        "another crashes": (
            (variant(STOCK, WRONG), variant("map.bad", ADD, AbortWhileMeasuring()), *right),
            IGNORANT,
        ),
        "same on the layer's weights": ((variant(STOCK, ADD), variant(ONE, BODY.format(op="maximumf"))), BIG),
    }
    return {name: (case(*listed, key=name), arbiter) for name, (listed, arbiter) in planted.items()}


Found = Mapping[str, Mapping[str, Measurement]]


@pytest.fixture(scope="module")
def found(pool: WorkerPool) -> Iterator[tuple[Found, list[str]]]:
    """What is measured of all cases, and what is told."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("sartor.tuning.measuring.tuner")
    log.addHandler(handler)
    arbiters = {name: arbiter for name, (_, arbiter) in cases().items()}
    with Store.in_memory() as store:
        tuner = Tuner(store, pool, SETTINGS, lambda *_: None, arbiter=lambda case: arbiters[case.key])
        yield tuner.measure(case for case, _ in cases().values()), told
    log.removeHandler(handler)


OK, OFF = Status.OK, Status.WRONG_RESULT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all agree", [OK, OK, OK]),
        ("wrong first", [OFF, OK]),
        ("wrong first and another", [OFF, OFF]),
        ("wrong routine", [OK, OFF, OFF]),
        ("outvoted", [OFF, OK, OK]),
        ("backed", [OK, OK, OFF]),
        ("one routine twice", [OK, OFF, OFF]),
        ("no code", [Status.COMPILE_FAILED, OFF, OK]),
        ("no code, alone", [Status.COMPILE_FAILED, OFF]),
        ("no code, majority", [Status.COMPILE_FAILED, OFF, OK, OK]),
        ("crash", [Status.CRASHED, OFF, OK]),
        ("crash, majority", [Status.CRASHED, OFF, OK, OK]),
        ("another crashes", [OFF, Status.CRASHED, OK, OK]),
        ("same on the layer's weights", [OK, OFF]),
    ],
)
def test_the_wrong_are_wrong_whoever_they_are(
    name: str, expected: list[Status], found: tuple[Found, list[str]]
) -> None:
    measured, descriptors = found[0][name], [each.descriptor for each in cases()[name][0].variants]
    assert [measured[descriptor].status for descriptor in descriptors] == expected, measured


def test_who_decided_is_stored(found: tuple[Found, list[str]]) -> None:
    message = found[0]["wrong first"][STOCK].message
    assert "candidate 0 is wrong" in message
    assert "ONNX Runtime on the nodes of layer 'Add_7'" in message
    assert "map.one and map.two" in found[0]["outvoted"][STOCK].message
    assert STOCK in found[0]["backed"][TWO].message


def test_times_are_taken_without_candidate_0(found: tuple[Found, list[str]]) -> None:
    right = found[0]["wrong first"][ONE]
    assert right.samples
    assert right.baseline_samples == ()
    assert right.error is not None
    assert right.error < 1e-6


def test_a_candidate_0_that_fails_is_told_once(found: tuple[Found, list[str]]) -> None:
    """Every case in which it fails and the layer is known."""
    _, told = found
    failing = ("wrong first", "wrong first and another", "outvoted", "no code", "no code, alone", "crash")
    assert len(told) == len(failing) + 1
    assert all("Add_7" in each for each in told)
    assert sum("wrong_result" in each for each in told) == 4
    assert sum("no_such_op" in each for each in told) == 2


BYTES = TensorType((200,), "i8")
TWICE = """util.func public @layer(%x: tensor<200xi8>) -> tensor<200xi8> {
  %empty = tensor.empty() : tensor<200xi8>
  %out = linalg.generic {iterator_types = ["parallel"],
      indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>]}
      ins(%x : tensor<200xi8>) outs(%empty : tensor<200xi8>) {
  ^bb0(%a: i8, %b: i8):
    %r = arith.addi %a, %a : i8
    linalg.yield %r : i8
  } -> tensor<200xi8>
  util.return %out : tensor<200xi8>
}"""


@pytest.mark.parametrize(("off", "status"), [(0, OK), (2, OK), (3, OFF)])
def test_a_few_ties_may_be_rounded_otherwise(off: int, status: Status, pool: WorkerPool) -> None:
    names = ((STOCK, TWICE.replace("addi", "no_such_op")), (ONE, TWICE))
    schema = Schema.plain(BYTES, "cpu")
    listed = tuple(Variant(name, "cpu", "f32", Implementation(body, (schema,), (schema,), ())) for name, body in names)
    with Store.in_memory() as store:
        tuner = Tuner(store, pool, SETTINGS, lambda *_: None, arbiter=lambda _: Counting(off))
        measured = tuner.measure([BenchmarkCase("bytes", (BYTES,), (), (BYTES,), listed)])["bytes"]
    assert measured[ONE].status is status


ROWS, INDICES, PICKED = TensorType((7, 5), "f32"), TensorType((4,), "i64"), TensorType((4, 5), "f32")
GATHER = """util.func public @layer(%rows: tensor<7x5xf32>, %indices: tensor<4xi64>) -> tensor<4x5xf32> {
  %empty = tensor.empty() : tensor<4x5xf32>
  %one = arith.constant 1 : i64
  %out = linalg.generic {iterator_types = ["parallel", "parallel"],
      indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]}
      ins(%indices : tensor<4xi64>) outs(%empty : tensor<4x5xf32>) {
  ^bb0(%index: i64, %b: f32):
    %next = arith.muli %index, %one : i64
    %row = arith.index_cast %next : i64 to index
    %column = linalg.index 1 : index
    %r = tensor.extract %rows[%row, %column] : tensor<7x5xf32>
    linalg.yield %r : f32
  } -> tensor<4x5xf32>
  util.return %out : tensor<4x5xf32>
}"""


def test_a_variant_that_reads_the_wrong_row_is_wrong(pool: WorkerPool) -> None:
    """With zeros for indices, all read the first row."""
    clipped = GATHER.replace("arith.muli %index, %one", "arith.minsi %index, %one")
    task = Task("gather", LayerKind.FIXED, GATHER, (ROWS, INDICES), (), (PICKED,))
    bodies = ((STOCK, GATHER), (ONE, GATHER.replace("%out", "%sum")), (TWO, clipped))
    rows, indices, picked = (Schema.plain(each, "cpu") for each in (ROWS, INDICES, PICKED))
    codes = {name: Implementation(body, (rows, indices), (picked,), ()) for name, body in bodies}
    listed = tuple(Variant(name, "cpu", "f32", code) for name, code in codes.items())
    what = BenchmarkCase(task.key, task.inputs, (), task.results, listed, integers=integer_ranges(task))
    with Store.in_memory() as store:
        zeros = replace(what, key="zeros", integers=(None, range(1)))
        measured = Tuner(store, pool, SETTINGS, lambda *_: None).measure([what, zeros])
    assert [measured["gather"][name].status for name, _ in bodies] == [OK, OK, OFF]
    assert [measured["zeros"][name].status for name, _ in bodies] == [OK, OK, OK]
