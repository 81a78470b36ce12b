"""What a user who waits is told: best times so far beside stock, and a bound on what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.search.found_so_far import FoundSoFar


@dataclass(frozen=True)
class _Variant:
    descriptor: str


@dataclass(frozen=True)
class _Case:
    key: str
    variants: tuple[_Variant, ...] = (_Variant("stock"), _Variant("fast"))


_CASES = cast("tuple[BenchmarkCase, ...]", (_Case("a"), _Case("b")))


def _measured(stock: float, fast: float, status: Status = Status.OK) -> dict[str, Measurement]:
    def one(name: str, seconds: float, status: Status) -> Measurement:
        key = MeasurementKey("task", name, "", "", 1, "", "")
        return Measurement(key, status, (seconds,) if status is Status.OK else ())

    return {"stock": one("stock", stock, status), "fast": one("fast", fast, Status.OK)}


def _found(clock: Any = lambda: 0.0) -> FoundSoFar:
    return FoundSoFar(_CASES, {"a": 3, "b": 1}, clock)


def test_layers_count_as_often_as_they_occur() -> None:
    found = _found()
    found.learn(_CASES[0], _measured(4e-3, 1e-3))
    assert str(found) == "1 of 2 kinds of layers measured: 3.000 ms, by stock IREE 12.000 ms"
    found.learn(_CASES[1], _measured(2e-3, 5e-3))
    assert str(found) == "2 of 2 kinds of layers measured: 5.000 ms, by stock IREE 14.000 ms"


def test_the_roofline_is_of_the_layers_that_are_measured() -> None:
    found = FoundSoFar(_CASES, {"a": 3, "b": 1}, bound={"a": 5e-4, "b": 7e-4})
    assert "roofline" not in str(found)
    found.learn(_CASES[0], _measured(4e-3, 1e-3))
    assert str(found).endswith("3.000 ms, by stock IREE 12.000 ms, roofline 1.500 ms")
    found.learn(_CASES[1], _measured(2e-3, 5e-3))
    assert str(found).endswith("roofline 2.200 ms")


def test_what_the_model_expects_of_all_layers_is_told_last() -> None:
    found = FoundSoFar(_CASES, {"a": 3, "b": 1}, bound={"a": 5e-4, "b": 7e-4})
    found.foresee(9e-3, 2e-3)
    assert str(found) == "0 of 2 kinds of layers measured"
    found.learn(_CASES[0], _measured(4e-3, 1e-3))
    assert str(found).endswith("roofline 1.500 ms; all layers 9.000 ms, by the model 7.000 ms")
    found.foresee(8e-3, 1e-3)
    assert str(found).endswith("; all layers 8.000 ms, by the model 7.000 ms")


def test_without_stock_there_is_nothing_to_compare_with() -> None:
    found = _found()
    found.learn(_CASES[0], _measured(4e-3, 1e-3, Status.CRASHED))
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
    assert found.told(_CASES[0], _measured(4e-3, 1e-3)).endswith("; at most 20 s left")
    for each in (_CASES[1], _CASES[1]):
        found.told(each, None)
    assert found.seconds_left == 0


def test_a_later_round_is_added() -> None:
    now = [0.0]
    found = _found(lambda: now[0])
    found.expect(2)
    found.told(_CASES[0], None)
    found.told(_CASES[0], _measured(4e-3, 1e-3))
    now[0] = 400.0
    found.expect(4)
    assert found.seconds_left == 800.0
    assert str(found).endswith("; at most 14 min left")
