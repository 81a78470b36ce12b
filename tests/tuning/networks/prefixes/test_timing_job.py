"""Beginnings of a network in turn, on a device whose clock a test sets."""

from __future__ import annotations

from collections.abc import Iterator

from sartor.tuning.networks.prefixes.timing_job import _in_turn


class Gpu:
    """Takes twice as long while its clock is low, which it is in some of its runs."""

    def __init__(self, low: range) -> None:
        self.runs = 0
        self._low = low

    @property
    def rate(self) -> float:
        return 750.0 if self.runs in self._low else 1500.0

    def run(self, seconds: float) -> Iterator[float]:
        while True:
            self.runs += 1
            yield seconds * 1500.0 / self.rate


def test_beginnings_at_a_low_clock_are_timed_again() -> None:
    gpu = Gpu(low=range(20, 26))
    short, long = gpu.run(1e-3), gpu.run(2e-3)
    samples = _in_turn([short.__next__, long.__next__], lambda: gpu.rate, 10.0)
    assert [set(sample) for sample in samples] == [{1e-3}, {2e-3}]
    assert len(samples[0]) == len(samples[1]) == 28


def test_without_a_clock_times_are_taken_as_they_come() -> None:
    gpu = Gpu(low=range(20, 26))
    (samples,) = _in_turn([gpu.run(1e-3).__next__], None, 10.0)
    assert set(samples) == {1e-3, 2e-3}
