"""Tests of waiting for an invocation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sartor.errors import DeviceError
from sartor.runtime.driver.native_device import Fences, NativeDevice


class _Semaphores:
    """Native fences whose device finishes after so many questions, or fails."""

    def __init__(self, questions: float, failure: str = "") -> None:
        self.questions, self.failure = questions, failure
        self.timeouts: list[int | None] = []

    def wait(self, timeout: int | None) -> bool:
        self.timeouts.append(timeout)
        if self.failure:
            raise RuntimeError(self.failure)
        return timeout is None or len(self.timeouts) >= self.questions


def _fences(finished: _Semaphores, *, software: bool) -> Fences:
    fences = Fences.__new__(Fences)
    device: Any = NativeDevice(None, "gpu", host_memory=False, blocking=False, software=software)
    fences.ready, fences.finished, fences._device = SimpleNamespace(), finished, device
    return fences


def test_the_end_of_a_run_in_a_software_driver_is_asked_for_without_waiting_inside_it() -> None:
    finished = _Semaphores(3)
    assert _fences(finished, software=True).wait(timeout=None)
    assert finished.timeouts == [0, 0, 0]


def test_asking_ends_at_the_time_limit() -> None:
    finished = _Semaphores(float("inf"))
    assert not _fences(finished, software=True).wait(timeout=0.0)
    assert not _fences(finished, software=True).wait(timeout=0.002)
    assert set(finished.timeouts) == {0}


def test_others_are_waited_for_by_their_driver() -> None:
    finished = _Semaphores(1)
    assert _fences(finished, software=False).wait(timeout=None)
    assert _fences(finished, software=False).wait(timeout=1.5)
    assert finished.timeouts == [None, 1_500_000_000]


@pytest.mark.parametrize("software", [True, False])
def test_a_run_that_failed_is_an_error_and_has_ended(software: bool) -> None:
    fences = _fences(_Semaphores(1, "c/hal.c:1: DATA_LOSS; the device was lost"), software=software)
    with pytest.raises(DeviceError, match="running on 'gpu' failed: the device was lost"):
        fences.wait(timeout=None)
    assert fences.settled(timeout=None)
