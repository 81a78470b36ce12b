"""Whole networks in turn, with sessions that take the time that a test gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.runtime.session import Session
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.measuring.runs import interruptions
from sartor.tuning.networks import profile_job
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.profile_job import Example, NetRun, NetTrial, _time_in_turn, time_nets
from sartor.tuning.records.measurement import Status


@dataclass
class Clock:
    """Time that passes as sessions run."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now

    thread_time = perf_counter


@dataclass
class FakeSession:
    """Takes some seconds, the first time after another one ten times as long."""

    clock: Clock
    seconds: float
    ran: list[float]
    runs: int = 0
    device = SimpleNamespace(blocking=True)

    def run(self, names: None, feeds: object) -> None:
        is_cold = not self.ran or self.ran[-1] != self.seconds
        self.ran.append(self.seconds)
        self.runs += 1
        self.clock.now += (10 if is_cold else 1) * self.seconds


class DistantSession(FakeSession):
    """Moves inputs and outputs to and from its device, which takes as long as it computes."""

    def run(self, names: None, feeds: object) -> None:
        super().run(names, feeds)
        self.clock.now += self.seconds


class GraphicsSession(FakeSession):
    """Has its inputs and outputs on its device."""

    def to_device(self, array: object) -> object:
        return array

    def run_device(self, names: None, feeds: object) -> None:
        super().run(names, feeds)

    def run(self, names: None, feeds: object) -> None:
        raise AssertionError("its inputs are moved in every run")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (profile_job, interruptions):
        monkeypatch.setattr(module, "time", found)
    return found


def timed(clock: Clock, taken: Sequence[float], **settings: float) -> tuple[list[FakeSession], list[Sequence[float]]]:
    ran: list[float] = []
    sessions = [FakeSession(clock, each, ran) for each in taken]
    given = MeasureSettings("cpu", 1, 1.0, hopeless=1.6, **settings)  # type: ignore[arg-type]
    found = _time_in_turn({index: cast(Session, each) for index, each in enumerate(sessions)}, {}, given)
    return sessions, [found[index] for index in range(len(taken))]


def test_a_sample_of_a_block_is_the_median_of_warm_runs(clock: Clock) -> None:
    sessions, samples = timed(clock, [0.001, 0.0011], rounds=6, seconds=10.0, block=4)
    assert samples[0] == pytest.approx([0.001] * 6)
    assert samples[1] == pytest.approx([0.0011] * 6)
    assert [each.runs for each in sessions] == [2 + 6 * 5] * 2


def test_the_time_of_a_network_on_another_device_has_its_transfers(clock: Clock) -> None:
    sessions = {0: GraphicsSession(clock, 0.001, []), 1: DistantSession(clock, 0.0006, [])}
    settings = MeasureSettings("vulkan", 1, 1.0, rounds=2, seconds=10.0, block=2, hopeless=20.0)
    given = {index: cast(Session, each) for index, each in sessions.items()}
    found = _time_in_turn(given, {"x": np.zeros(1)}, settings, {1})
    assert found[0] == pytest.approx([0.001] * 2)
    assert found[1] == pytest.approx([0.0012] * 2)


def test_a_block_of_a_network_of_microseconds_has_more_runs(clock: Clock) -> None:
    sessions, samples = timed(clock, [20e-6], rounds=3, seconds=10.0, block=4)
    assert samples[0] == pytest.approx([20e-6] * 3)
    assert sessions[0].runs == 2 + 3 * 101


def test_blocks_are_as_long_as_there_is_time_for(clock: Clock) -> None:
    # Single runs would be cold ones, which take ten times as long here, as those that tell how long blocks may be.
    sessions, samples = timed(clock, [0.001, 0.0011], rounds=6, seconds=0.12, block=4)
    assert (samples[0][0], samples[1][0]) == pytest.approx((0.001, 0.0011))
    assert sessions[0].runs == 2 + 3 * len(samples[0])


def test_what_takes_too_long_for_a_warm_run_is_run_once_in_a_round(clock: Clock) -> None:
    sessions, samples = timed(clock, [0.001, 0.0011], rounds=6, seconds=0.07, block=4)
    assert sessions[0].runs == len(samples[0]) >= 2


def test_a_hopeless_network_is_run_twice(clock: Clock) -> None:
    sessions, samples = timed(clock, [0.001, 0.002], rounds=6, seconds=10.0, block=4)
    assert (sessions[1].runs, len(samples[1])) == (2, 2)
    assert len(samples[0]) == 6


def test_samples_at_a_low_clock_are_taken_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([1500.0] * 5 + [900.0] + [1500.0] * 20)
    monkeypatch.setattr(profile_job, "clock_of", lambda device: lambda: next(rates))
    sessions, samples = timed(clock, [0.001, 0.0011], rounds=6, seconds=10.0, block=4)
    assert [len(each) for each in samples] == [6, 6]
    # One block more than without a fault.
    assert sum(each.runs for each in sessions) == 2 * (2 + 6 * 5) + 5


def test_without_blocks_runs_alternate(clock: Clock) -> None:
    sessions, samples = timed(clock, [1.0, 1.1], rounds=2, seconds=30.0)
    assert [each.runs for each in sessions] == [2, 2]
    assert samples[0] == pytest.approx([10.0, 10.0])


def test_networks_too_slow_for_a_block_are_run_alone(clock: Clock) -> None:
    sessions, _ = timed(clock, [1.0], rounds=6, seconds=4.0, block=4)
    assert sessions[0].runs == 2


def test_a_round_is_the_last_when_time_is_over(clock: Clock) -> None:
    sessions, samples = timed(clock, [0.01], rounds=100, seconds=1.0, block=4)
    assert 1 < len(samples[0]) < 30
    assert sessions[0].runs == 2 + 5 * len(samples[0])


def test_nothing_to_time(clock: Clock) -> None:
    assert timed(clock, [], rounds=6, seconds=1.0, block=4) == ([], [])


def test_of_several_processes_the_one_in_the_middle_counts() -> None:
    runs = [
        NetRun(Status.OK, (seconds,) * 3, 1e-3, memory=memory) for seconds, memory in ((3, 7), (1, None), (2, None))
    ]
    assert NetRun.joined(runs) == NetRun(Status.OK, (2, 2, 2), 1e-3, memory=7)


def test_what_failed_in_one_process_has_failed() -> None:
    crashed = NetRun(Status.CRASHED, message="gone")
    assert NetRun.joined([NetRun(Status.OK, (1.0,)), crashed]) == crashed


@dataclass
class FailingNet:
    """Cannot be loaded.

    Attributes:
        said: by the driver.
    """

    said: str
    devices: tuple[str, ...] = ()

    def open_device(self, name: str, threads: int | None) -> None:
        raise DeviceError(self.said)


def _tried(device: str, *said: str, devices: tuple[str, ...] = ()) -> list[NetRun]:
    nets = [cast(NetFiles, FailingNet(each, devices)) for each in said]
    return time_nets(NetTrial(nets, ((), ()), Example({}, (), ()), MeasureSettings(device, 1, 1.0)))


def test_what_fails_on_a_cpu_is_no_fault_of_the_device() -> None:
    statuses = [each.status for each in _tried("cpu", "INTERNAL; no such function", "RESOURCE_EXHAUSTED; buffers")]
    assert statuses == [Status.CRASHED, Status.OUT_OF_MEMORY]


@pytest.mark.parametrize(("device", "devices"), [("vulkan", ()), ("cuda", ()), ("cpu", ("cpu", "cuda"))])
def test_what_fails_on_a_gpu_may_have_lost_it_for_all(device: str, devices: tuple[str, ...]) -> None:
    with pytest.raises(DeviceError, match="DEVICE_LOST"):
        _tried(device, "VK_ERROR_DEVICE_LOST", "fine otherwise", devices=devices)
