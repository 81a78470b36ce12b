"""Asking for the clock of a GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from sartor.tuning.measuring.runs.gpu_clock import clock_of


def library(rates: dict[int, int], status: int = 0) -> SimpleNamespace:
    """A management library with one GPU, whose clocks are known by their kind."""

    def rate(handle: ctypes.c_void_p, kind: int, value: ctypes.c_uint) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = rates.get(kind, 0)
        return 0 if kind in rates else 3

    return SimpleNamespace(
        nvmlInit_v2=lambda: status,
        nvmlDeviceGetHandleByIndex_v2=lambda number, handle: 0 if number == 0 else 2,
        nvmlDeviceGetClockInfo=rate,
    )


def test_the_rate_is_that_of_the_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library({0: 300, 1: 1755, 2: 2619}))
    read = clock_of("cuda")
    assert read is not None
    assert read() == 1755.0


def test_a_rate_that_is_refused_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library({2: 2619}))
    read = clock_of("cuda:0")
    assert read is not None
    assert read() is None


def test_devices_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library({1: 1755}, status=999))
    assert clock_of("cuda") is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library({1: 1755}))
    assert clock_of("cuda:1") is None
    assert clock_of("cpu") is None
    assert clock_of("vulkan") is None


def test_no_library_is_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert clock_of("cuda") is None
