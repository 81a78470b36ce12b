"""A fault on the device is the status of the variant that caused it, and the others are measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.measuring.device_faults import DeviceFault, Hang, LaunchFailure, LostDevice, OutOfMemory
from tests.tuning.measuring.test_tuner import ADD, SETTINGS, case, variant

_RESOURCES = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
FAULTS: Mapping[str, tuple[DeviceFault, Status, str]] = {
    "memory": (OutOfMemory(), Status.OUT_OF_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    "launch": (LaunchFailure(), Status.CRASHED, "too many resources"),
    "lost": (LostDevice(), Status.CRASHED, "VK_ERROR_DEVICE_LOST"),
    "hang": (Hang(), Status.TIMEOUT, ""),
    # What a driver of NVIDIA says.
    "cudamemory": (OutOfMemory("CUDA_ERROR_OUT_OF_MEMORY"), Status.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
    "cudalaunch": (LaunchFailure(_RESOURCES), Status.CRASHED, _RESOURCES),
    # After such an access nothing runs in the process any more.
    "cudalost": (LostDevice("CUDA_ERROR_ILLEGAL_ADDRESS"), Status.CRASHED, "CUDA_ERROR_ILLEGAL_ADDRESS"),
}
# A worker that hangs is killed after this time, twice: with the other variants, and beside candidate 0 alone.
_PATIENCE = 6.0


@pytest.fixture(scope="module")
def found() -> Iterator[Mapping[str, Mapping[str, Measurement]]]:
    settings = replace(SETTINGS, measure_timeout=_PATIENCE)
    cases = [
        case(variant("stock", ADD), variant(name, ADD, fault), variant("other", ADD.replace("%out", "%sum")), key=name)
        for name, (fault, _, _) in FAULTS.items()
    ]
    with WorkerPool(1) as pool, Store.in_memory() as store:
        yield Tuner(store, pool, settings, lambda *_: None).measure(cases)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_status_and_the_others_are_measured(
    fault: str, found: Mapping[str, Mapping[str, Measurement]]
) -> None:
    _, status, reason = FAULTS[fault]
    statuses = {name: each.status for name, each in found[fault].items()}
    assert statuses == {"stock": Status.OK, fault: status, "other": Status.OK}
    assert reason in found[fault][fault].message
