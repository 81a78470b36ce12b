"""Tables of precisions, from results that were not measured."""

from __future__ import annotations

import pytest

from benchmarks.contest import Result
from benchmarks.precision import _row, _undominated


def test_a_row_is_the_median_of_ratios_within_processes() -> None:
    """Each process is as fast as it is: its times compare with each other only."""
    found = [
        {"bf16": Result(seconds, 0.02), "openvino": Result(3 * seconds, 0.0), "openvino bf16": Result(other, 0.03)}
        for seconds, other in [(1e-3, 1.1e-3), (2e-3, 2.6e-3), (1.5e-3, 1.8e-3)]
    ]
    row = _row("net", 1, "bf16", "openvino", found)
    assert row.milliseconds == pytest.approx(1.5)
    assert row.error == 0.02
    assert row.faster_than_f32 == pytest.approx(3.0)
    assert (row.lowest, row.faster_than_openvino, row.highest) == pytest.approx((1.1, 1.2, 1.3))


def test_a_peer_is_compared_with_no_other() -> None:
    found = [{"openvino": Result(3e-3, 0.0), "onnxruntime": Result(4e-3, 0.0)}]
    row = _row("net", 1, "onnxruntime", "openvino", found)
    assert (row.faster_than_openvino, row.lowest, row.highest) == (None, None, None)
    assert row.faster_than_f32 == pytest.approx(0.75)


def test_a_front_has_no_point_that_another_beats_in_both() -> None:
    points = [(0.06, 2.24), (0.002, 4.45), (0.036, 2.11), (0.018, 2.92)]
    assert _undominated(points) == [(0.002, 4.45), (0.018, 2.92), (0.036, 2.11)]
