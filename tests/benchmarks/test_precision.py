"""The front of time by error, from points that were not measured."""

from __future__ import annotations

from benchmarks.precision import _undominated


def test_a_front_has_no_point_that_another_beats_in_both() -> None:
    points = [(0.06, 2.24), (0.002, 4.45), (0.036, 2.11), (0.018, 2.92)]
    assert _undominated(points) == [(0.002, 4.45), (0.018, 2.92), (0.036, 2.11)]
