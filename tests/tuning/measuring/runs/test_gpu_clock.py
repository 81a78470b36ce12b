"""Asking for the clock of a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sartor.errors import DeviceError
from sartor.runtime.driver import device as devices
from sartor.runtime.driver.drivers import DriverDevice
from sartor.tuning.measuring.runs.gpu_clock import clock_of

# The library lists the slower GPU first, as its slot comes first, and CUDA the faster one.
SLOW, FAST = "GPU-00000000-1111-2222-3333-444444444444", "GPU-55555555-6666-7777-8888-999999999999"
MULTIPROCESSORS = 1


class Library(SimpleNamespace):
    """A management library that knows the clocks of two GPUs by their kind."""

    def __init__(self, rates: dict[str, dict[int, int]], status: int = 0) -> None:
        self.rates, self.status, self.begun = rates, status, 0
        super().__init__(
            nvmlInit_v2=self._begin, nvmlDeviceGetHandleByUUID=self._find, nvmlDeviceGetClockInfo=self._rate
        )

    def _begin(self) -> int:
        self.begun += 1
        return self.status

    def _find(self, uuid: bytes, handle: object) -> int:
        if uuid.decode() not in self.rates:
            return 6
        handle._obj.value = 1 + list(self.rates).index(uuid.decode())  # type: ignore[attr-defined]
        return 0

    def _rate(self, handle: ctypes.c_void_p, kind: int, value: object) -> int:
        known = list(self.rates.values())[(handle.value or 0) - 1]
        value._obj.value = known.get(kind, 0)  # type: ignore[attr-defined]
        return 0 if kind in known else 3


@pytest.fixture(autouse=True)
def visible(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The UUIDs of the GPUs that CUDA shows, in its order."""
    found = [FAST, SLOW]
    monkeypatch.setattr(
        devices, "driver_devices", lambda _: [DriverDevice(1 + at, each, "GPU") for at, each in enumerate(found)]
    )
    clock_of.cache_clear()
    yield found
    clock_of.cache_clear()


def installed(patch: pytest.MonkeyPatch, library: object) -> None:
    patch.setattr(ctypes, "CDLL", lambda name: library)


def both() -> Library:
    return Library({SLOW: {0: 300, MULTIPROCESSORS: 1400, 2: 2619}, FAST: {0: 500, MULTIPROCESSORS: 1755, 2: 2619}})


@pytest.mark.parametrize(("device", "rate"), [("cuda", 1755.0), ("cuda:0", 1755.0), ("cuda:1", 1400.0)])
def test_the_rate_is_that_of_the_multiprocessors(device: str, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, both())
    read = clock_of(device)
    assert read is not None
    assert read() == rate


def test_a_gpu_that_is_alone_visible_is_the_one_that_is_asked(
    visible: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by CUDA_VISIBLE_DEVICES."""
    visible[:] = [SLOW]
    installed(monkeypatch, both())
    read = clock_of("cuda")
    assert read is not None
    assert read() == 1400.0


def test_the_library_begins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = both()
    installed(monkeypatch, library)
    assert clock_of("cuda") is clock_of("cuda")
    assert library.begun == 1


def test_a_rate_that_is_refused_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Library({FAST: {2: 2619}}))
    read = clock_of("cuda:0")
    assert read is not None
    assert read() is None


@pytest.mark.parametrize(
    ("device", "library"),
    [
        ("cpu", both()),
        ("vulkan", both()),
        ("cuda:2", both()),
        ("cuda", Library({FAST: {MULTIPROCESSORS: 1755}}, status=999)),
        ("cuda", Library({SLOW: {MULTIPROCESSORS: 1400}})),
        ("cuda", SimpleNamespace(nvmlInit_v2=lambda: 0)),
    ],
    ids=["cpu", "vulkan", "no such GPU", "no driver", "unknown UUID", "too old a library"],
)
def test_devices_without_a_clock(device: str, library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, library)
    assert clock_of(device) is None


def test_no_library_is_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert clock_of("cuda") is None


def test_no_cuda_is_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise DeviceError("no cuda device can be used")

    monkeypatch.setattr(devices, "driver_devices", missing)
    installed(monkeypatch, both())
    assert clock_of("cuda") is None
