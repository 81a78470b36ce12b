"""Tables with the times of calls with several sizes, by which plans are near the best for each."""

from __future__ import annotations

import pytest

from sartor.planning.contenders.regret_plans import of_call, weighted
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status


class Named:
    """As much of a variant as tables need."""

    def __init__(self, descriptor: str) -> None:
        self.descriptor = descriptor


def measured(name: str, seconds: float, *baseline: float) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "backend")
    return Measurement(key, Status.OK, (seconds,), baseline)


def test_what_was_not_timed_with_the_sizes_of_a_call_takes_as_long_as_in_the_mean() -> None:
    """Stock code is not timed with small sizes where it is too slow with the largest; it is not free."""
    broken = Measurement(measured("broken", 1.0).key, Status.CRASHED)
    rows = {"stock": measured("stock", 0.6), "fast": measured("fast", 0.2, 0.6), "broken": broken}
    tables = Tables({"task": tuple(map(Named, rows))}, {"task": rows})  # type: ignore[arg-type]
    large = of_call(tables, {"task": {"stock": measured("stock", 3.0), "fast": measured("fast", 1.0, 3.0)}})
    small = of_call(tables, {"task": {"fast": measured("fast", 0.01)}})
    assert [small.seconds("task", name) for name in rows] == [0.6, 0.01, None]
    for share in (0.0, 0.25, 1.0):
        found = weighted(tables, [large, small], [share, 1 - share])
        expected = [share * 3.0 + (1 - share) * 0.6, share * 1.0 + (1 - share) * 0.01]
        assert [found.seconds("task", name) for name in ("stock", "fast")] == pytest.approx(expected)
        assert found.measured["task"]["broken"] is broken
