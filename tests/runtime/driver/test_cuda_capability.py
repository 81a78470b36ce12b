"""Asking for the compute capability of a GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from sartor.cli.options.common import read_architecture
from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.cuda_capability import compute_capability


def driver(major: int, minor: int, status: int = 0) -> SimpleNamespace:
    """A driver with one GPU."""

    def attribute(value: ctypes.c_int, which: int, device: ctypes.c_int) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = {75: major, 76: minor}[which]
        return 0

    return SimpleNamespace(
        cuInit=lambda flags: status, cuDeviceGet=lambda device, number: 0, cuDeviceGetAttribute=attribute
    )


def test_native_is_the_gpu_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(8, 9))
    assert compute_capability() == (8, 9)
    assert read_architecture("cuda", "native") == "sm_89"
    assert read_architecture("cuda", "sm_80") == "sm_80"
    assert read_architecture("vulkan", None) is None


def test_a_gpu_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(7, 5))
    with pytest.raises(UsageError, match=r"compute capability 7\.5, sm_80"):
        read_architecture("cuda", "native")


def test_a_driver_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(8, 0, status=100))
    with pytest.raises(DeviceError, match="refuses cuInit with status 100"):
        compute_capability()


def test_no_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match="name the architecture, for example sm_80"):
        compute_capability()
