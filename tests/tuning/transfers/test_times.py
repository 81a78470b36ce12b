"""Times of transfers between measured sizes."""

from __future__ import annotations

import pytest

from sartor.tuning.transfers.times import TransferTimes


@pytest.mark.parametrize(
    ("size", "seconds"),
    [(0, 10.0), (100, 10.0), (150, 11.0), (200, 12.0), (300, 16.0), (400, 20.0), (500, 24.0)],
)
def test_times_lie_on_lines_through_measured_sizes(size: int, seconds: float) -> None:
    times = TransferTimes.of({200: 12.0, 100: 10.0, 400: 20.0})
    assert times.seconds(size) == pytest.approx(seconds)


def test_one_size_stands_for_all() -> None:
    assert TransferTimes.of({100: 3.0}).seconds(10**9) == 3.0


def test_a_larger_tensor_takes_no_less_time() -> None:
    assert TransferTimes.of({1: 2.0, 10: 1.0, 20: 5.0}).points == ((1, 2.0), (10, 2.0), (20, 5.0))
