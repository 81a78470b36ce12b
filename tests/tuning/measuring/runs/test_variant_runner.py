"""Times of variants: what the first call tells, and how often short ones run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sartor.tuning.measuring.runs import variant_runner
from sartor.tuning.measuring.runs.variant_runner import VariantRunner, least_seconds


def test_tiles_that_a_driver_compiles_for_seconds_are_not_taken_for_slow() -> None:
    assert least_seconds(5.0, is_candidate_0=False) == 0
    assert least_seconds(60.0, is_candidate_0=False) > 0


def test_candidate_0_is_compiled_quickly_and_so_is_slow_if_its_first_call_is() -> None:
    assert least_seconds(0.5, is_candidate_0=True) == 0
    assert 0 < least_seconds(5.0, is_candidate_0=True) < 5


def test_other_programs_do_not_make_the_first_call_of_a_software_driver_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def processor_time(run: Callable[[], None]) -> float:
        run()
        return 7.0

    monkeypatch.setattr(variant_runner, "busiest_seconds", processor_time)
    runner: Any = object.__new__(VariantRunner)
    runner._program = SimpleNamespace(invoke=lambda symbol, arguments: [symbol, *arguments])
    runner._symbol = "layer"
    for software in (True, False):
        runner._device = SimpleNamespace(software=software)
        seconds, views = runner._called(["x"])
        assert (seconds == 7.0) == software
        assert views == ["run_layer", "x"]


@pytest.mark.parametrize(("taken", "is_candidate_0", "least"), [(0.1, True, 0.0), (0.8, True, 0.8), (0.8, False, 0.0)])
def test_a_long_first_call_of_stock_code_on_a_cpu_tells_how_long_calls_take(
    monkeypatch: pytest.MonkeyPatch, taken: float, is_candidate_0: bool, least: float
) -> None:
    """A kernel's may be long by chance."""
    runner: Any = object.__new__(VariantRunner)
    runner._device = SimpleNamespace(host_memory=True, software=False)
    runner._case = SimpleNamespace(results=())
    runner._implementation = SimpleNamespace(outputs=())
    runner._arrays, runner._sizes, runner.calls, runner.least_seconds = [[]], [], 1, 0.0
    runner._is_candidate_0 = is_candidate_0
    monkeypatch.setattr(runner, "_called", lambda arguments: (taken, []))
    assert runner.outputs() == []
    assert runner.least_seconds == least
