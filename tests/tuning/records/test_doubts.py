"""Measurements beside other programs are doubted once the machine is quiet, and each but once."""

from __future__ import annotations

from sartor.tuning.records.doubts import Doubts
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status


def _measurement(name: str, load: float) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, Status.OK, (1.0,), foreign_load=load)


_ALONE, _BESIDE = _measurement("alone", 0.0), _measurement("beside", 0.5)
_KNOWN = {each.key: each for each in (_ALONE, _BESIDE)}


def test_what_was_measured_beside_others_does_not_hold_once_it_is_quiet() -> None:
    assert Doubts(lambda: True).holding(_KNOWN) == {_ALONE.key: _ALONE}
    assert Doubts(lambda: False).holding(_KNOWN) == _KNOWN


def test_what_this_compilation_measured_holds() -> None:
    doubts = Doubts(lambda: True)
    doubts.made(_BESIDE.key)
    assert doubts.holding(_KNOWN) == _KNOWN


def test_the_machine_is_asked_about_once_and_only_if_that_matters() -> None:
    asked: list[int] = []

    def is_quiet() -> bool:
        asked.append(1)
        return True

    doubts = Doubts(is_quiet)
    assert not doubts.about(_ALONE)
    assert asked == []
    assert all(doubts.about(_BESIDE) for _ in range(3))
    assert asked == [1]
