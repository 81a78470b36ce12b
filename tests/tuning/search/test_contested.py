"""Which measurements are made or repeated for what they promise or decide, and what users are told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.search.doubts.contested import contested
from sartor.tuning.search.found_so_far import FoundSoFar
from sartor.tuning.search.outlook import SPREAD, expected_gain, spread_of
from sartor.tuning.search.search import VariantSearch
from tests.tuning.search.searched_tasks import KERNELS, STOCK, samples, task


@dataclass(frozen=True)
class _Variant:
    descriptor: str


@dataclass(frozen=True)
class _Case:
    key: str
    variants: tuple[_Variant, ...]


_CASE = cast(BenchmarkCase, _Case("t", tuple(map(_Variant, ("stock", "fast", "near", "slow")))))


def _measured(**loads: float) -> dict[str, dict[str, Measurement]]:
    seconds = {"stock": 5.0, "fast": 1.0, "near": 1.2, "slow": 4.0}
    return {
        "t": {
            name: Measurement(
                MeasurementKey("t", name, "source", "hardware", 1, "runtime", "backend"),
                Status.OK,
                (time,),
                (5.0,) if name != "stock" else (),
                foreign_load=loads.get(name, 0.0),
            )
            for name, time in seconds.items()
        }
    }


@pytest.mark.parametrize(("disturbed", "repeated"), [("fast", True), ("near", True), ("slow", False), ("stock", False)])
def test_what_decides_is_repeated(disturbed: str, repeated: bool) -> None:
    found = contested([_CASE], _measured(**{disturbed: 0.7}))
    names = [[variant.descriptor for variant in case.variants] for case in found]
    assert names == ([["stock", "fast", "near"]] if repeated else [])


def test_a_reshape_decides_nothing() -> None:
    """It takes no time whatever others do, and they read another layout."""
    known = _measured(fast=0.7)["t"]
    known["slow"] = replace(known["slow"], samples=(1e-7,), baseline_samples=())
    (found,) = contested([_CASE], {"t": known})
    assert [variant.descriptor for variant in found.variants] == ["stock", "fast", "near", "slow"]


def test_a_task_without_times_is_not_repeated() -> None:
    assert contested([_CASE], {}) == []


RATIOS = [0.9, 1.0, 1.1, 1.3, 0.8, 1.0, 1.2, 0.95]


@pytest.mark.parametrize(("present", "predicted"), [(1.0, 1.0), (1.0, 1.3), (2.0, 1.7)])
def test_the_gain_is_the_mean_of_what_the_faster_one_saves(present: float, predicted: float) -> None:
    spread = 0.3
    drawn = np.random.default_rng(0).normal(-(spread**2) / 2, spread, 400_000)
    saved = np.maximum(0.0, present - predicted * np.exp(drawn))
    assert expected_gain(present, predicted, spread) == pytest.approx(saved.mean(), rel=0.02)


def test_sure_predictions_promise_their_difference_and_uncertain_ones_more() -> None:
    assert expected_gain(3.0, 2.0, 0.01) == pytest.approx(1.0, rel=1e-3)
    assert expected_gain(2.0, 3.0, 0.01) == pytest.approx(0.0, abs=1e-9)
    assert 0 < expected_gain(2.0, 3.0, 0.2) < expected_gain(2.0, 3.0, 0.5)


def test_the_spread_is_that_within_tasks_whatever_factor_these_have() -> None:
    """Pairs of variants tell as much as a task with many, and a single one nothing."""
    drawn = np.exp(np.random.default_rng(0).normal(0, 0.1, 400))
    for size in (2, 4, 100):
        tasks = [
            [(factor * ratio, 1.0) for ratio in drawn[start : start + size]]
            for factor, start in enumerate(range(0, len(drawn), size), 1)
        ]
        assert spread_of(tasks) == pytest.approx(0.1, rel=0.2)
    whole = [(ratio, 1.0) for ratio in RATIOS]
    assert spread_of([whole] * 2) > spread_of([whole] * 8) > 0.8 * spread_of([whole] * 2), "what few tell is doubted"
    assert SPREAD != spread_of([whole, [*whole, (50.0, 1.0)]]) < 0.5
    assert spread_of([[pair] for pair in whole]) == SPREAD
    assert spread_of([whole[:4], whole[4:7]]) == SPREAD
    assert spread_of([whole, whole[:1]]) == SPREAD, "a single task tells nothing of the others"


def test_a_choice_that_is_close_promises_more_than_one_that_is_clear() -> None:
    others, layer = [task(f"{side}", 64, side) for side in (7, 28, 56)], task("a", 64, 14)
    search = VariantSearch([layer], samples=samples(*others))
    predicted = search.outlook({"a": KERNELS}, {}).promises
    alone = search.outlook({"a": (STOCK,)}, {}).promises
    assert predicted["a"].rate > alone["a"].rate >= 0
    assert search.outlook({"a": ()}, {}).promises == {}
    assert VariantSearch([layer]).outlook({"a": (STOCK,)}, {}).promises == {}


@dataclass(frozen=True)
class _FoundSoFarCase:
    key: str
    variants: tuple[_Variant, ...] = (_Variant("stock"), _Variant("fast"))


_CASES = cast("tuple[BenchmarkCase, ...]", (_FoundSoFarCase("a"), _FoundSoFarCase("b")))


def _found_so_far_measured(stock: float, fast: float, status: Status = Status.OK) -> dict[str, Measurement]:
    def one(name: str, seconds: float, status: Status) -> Measurement:
        key = MeasurementKey("task", name, "", "", 1, "", "")
        return Measurement(key, status, (seconds,) if status is Status.OK else ())

    return {"stock": one("stock", stock, status), "fast": one("fast", fast, Status.OK)}


def _found(clock: Any = lambda: 0.0) -> FoundSoFar:
    return FoundSoFar(_CASES, {"a": 3, "b": 1}, clock)


def test_layers_count_as_often_as_they_occur() -> None:
    found = _found()
    found.learn(_CASES[0], _found_so_far_measured(4e-3, 1e-3))
    assert str(found) == "1 of 2 kinds of layers measured: 3.000 ms, by stock IREE 12.000 ms"
    found.learn(_CASES[1], _found_so_far_measured(2e-3, 5e-3))
    assert str(found) == "2 of 2 kinds of layers measured: 5.000 ms, by stock IREE 14.000 ms"


def test_the_roofline_is_of_the_layers_that_are_measured() -> None:
    found = FoundSoFar(_CASES, {"a": 3, "b": 1}, bound={"a": 5e-4, "b": 7e-4})
    assert "roofline" not in str(found)
    found.learn(_CASES[0], _found_so_far_measured(4e-3, 1e-3))
    assert str(found).endswith("3.000 ms, by stock IREE 12.000 ms, roofline 1.500 ms")
    found.learn(_CASES[1], _found_so_far_measured(2e-3, 5e-3))
    assert str(found).endswith("roofline 2.200 ms")


def test_what_the_model_expects_of_all_layers_is_told_last() -> None:
    found = FoundSoFar(_CASES, {"a": 3, "b": 1}, bound={"a": 5e-4, "b": 7e-4})
    found.foresee(9e-3, 2e-3)
    assert str(found) == "0 of 2 kinds of layers measured"
    found.learn(_CASES[0], _found_so_far_measured(4e-3, 1e-3))
    assert str(found).endswith("roofline 1.500 ms; all layers 9.000 ms, by the model 7.000 ms")
    found.foresee(8e-3, 1e-3)
    assert str(found).endswith("; all layers 8.000 ms, by the model 7.000 ms")


def test_without_stock_there_is_nothing_to_compare_with() -> None:
    found = _found()
    found.learn(_CASES[0], _found_so_far_measured(4e-3, 1e-3, Status.CRASHED))
    assert str(found) == "0 of 2 kinds of layers measured"


def test_what_is_left_takes_as_long_as_what_was_done() -> None:
    now = [0.0]
    found = _found(lambda: now[0])
    assert found.seconds_left is None
    found.expect(4)
    now[0] = 10.0
    found.told(_CASES[0], None)
    assert found.seconds_left == 10.0 / 2 * 6
    now[0] = 20.0
    assert found.told(_CASES[0], _found_so_far_measured(4e-3, 1e-3)).endswith("; at most 20 s left")
    for each in (_CASES[1], _CASES[1]):
        found.told(each, None)
    assert found.seconds_left == 0


def test_a_later_round_is_added() -> None:
    now = [0.0]
    found = _found(lambda: now[0])
    found.expect(2)
    found.told(_CASES[0], None)
    found.told(_CASES[0], _found_so_far_measured(4e-3, 1e-3))
    now[0] = 400.0
    found.expect(4)
    assert found.seconds_left == 800.0
    assert str(found).endswith("; at most 14 min left")
