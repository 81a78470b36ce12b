"""What is known of a task: the best variant, and what failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.tasks import TaskResult, task_results

KEY = MeasurementKey("task", "stock", "source", "machine", 1, "runtime", "cpu:host")


def measured(variant: str, seconds: float, baseline: float | None = None, **key: object) -> Measurement:
    samples = () if baseline is None else (baseline,)
    changed = replace(KEY, variant=variant, **key)  # type: ignore[arg-type]
    return Measurement(changed, Status.OK, (seconds,), samples, created=1.0)


def results(*measurements: Measurement) -> list[TaskResult]:
    return list(task_results(sorted(measurements, key=lambda measurement: measurement.key)))


def name(result: TaskResult) -> str | None:
    return result.best.key.variant if result.best else None


def test_variants_compare_by_their_ratio_to_the_stock_of_the_same_run() -> None:
    lucky, better = measured("lucky", 1.0, baseline=1.0), measured("better", 1.5, baseline=4.0)
    (result,) = results(measured("stock", 2.0), lucky, better)
    assert name(result) == "better"
    assert result.seconds == pytest.approx(0.75)
    assert result.stock_seconds == 2.0


def test_stock_may_be_the_best() -> None:
    (result,) = results(measured("stock", 2.0), measured("a", 3.0, baseline=2.0))
    assert (name(result), result.seconds, result.stock_seconds) == ("stock", 2.0, 2.0)


def test_what_was_compared_with_nothing_has_no_stock_time() -> None:
    (result,) = results(measured("plan:1", 3.0), measured("unsplit", 4.0), measured("plan:1:in-place", 0.1))
    assert (name(result), result.seconds, result.stock_seconds) == ("plan:1", 3.0, None)
    assert len(result.variants) == 2


def test_without_its_stock_a_task_still_has_a_best() -> None:
    (result,) = results(measured("a", 3.0, baseline=2.0), measured("b", 1.0, baseline=2.0))
    assert (name(result), result.seconds, result.stock_seconds) == ("b", 1.0, 2.0)


def test_failures_are_never_the_best() -> None:
    crashed = Measurement(replace(KEY, variant="a"), Status.CRASHED, message="SIGSEGV", created=1.0)
    (result,) = results(crashed, measured("stock", 2.0))
    assert name(result) == "stock"
    assert result.failures == (crashed,)
    (alone,) = results(crashed)
    assert (alone.best, alone.seconds, alone.stock_seconds) == (None, None, None)


def test_only_the_latest_code_of_a_variant_counts() -> None:
    old = measured("a", 0.1, baseline=2.0, source="old")
    new = replace(measured("a", 1.0, baseline=2.0, source="new"), created=2.0)
    (result,) = results(old, new, measured("stock", 2.0))
    assert (result.best, len(result.variants)) == (new, 2)


def test_every_place_and_task_has_its_own_result() -> None:
    found = results(
        measured("stock", 2.0),
        measured("stock", 1.0, threads=2),
        measured("stock", 3.0, hardware="other"),
        measured("stock", 4.0, task="another"),
    )
    assert [each.seconds for each in found] == [4.0, 2.0, 1.0, 3.0]


@pytest.mark.parametrize("part", ["in-place", "in-place:e7f00bb0", "first", "verified", "searched"])
def test_parts_of_a_network_are_not_the_network(part: str) -> None:
    (result,) = results(measured("plan:1", 3.0), measured(f"plan:1:{part}", 0.1))
    assert (name(result), result.seconds, len(result.variants)) == ("plan:1", 3.0, 1)
