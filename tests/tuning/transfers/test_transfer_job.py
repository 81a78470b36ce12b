"""Transfers that are timed on devices."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.target import Target
from sartor.errors import DeviceError
from sartor.runtime.driver.device import open_device
from sartor.tuning.transfers import transfer_job
from sartor.tuning.transfers.transfer_job import time_transfers
from sartor.tuning.workers.protocol import WorkerError

pytestmark = pytest.mark.vulkan

CPU, GPU = Target.create("cpu"), Target.create("vulkan")
SIZES = (64, 4096)


def test_each_size_is_timed_in_both_directions() -> None:
    try:
        open_device("vulkan")
    except DeviceError as error:
        pytest.skip(str(error))
    for pair in ((CPU, GPU), (GPU, CPU)):
        found = time_transfers(*pair, SIZES)
        assert not isinstance(found, WorkerError)
        assert [*found] == [*SIZES]
        assert all(seconds > 0 for samples in found.values() for seconds in samples)


def test_a_device_that_is_not_there_is_an_error_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("no vulkan device can be used")

    monkeypatch.setattr(transfer_job, "open_device", fail)
    found = time_transfers(CPU, GPU, SIZES)
    assert isinstance(found, WorkerError)
    assert isinstance(found.error, DeviceError)
