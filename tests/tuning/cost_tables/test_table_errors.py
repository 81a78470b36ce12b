"""By how much tables err, from their samples and from times in networks."""

from __future__ import annotations

import math

import pytest

from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.table_errors import TableErrors, sampling_error
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status


class Named:
    """As much of a variant as tables need."""

    def __init__(self, descriptor: str) -> None:
        self.descriptor = descriptor


def measured(name: str, *samples: float) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "backend")
    return Measurement(key, Status.OK, samples)


def tables(**seconds: float) -> Tables:
    """A variant ``v`` of each task."""
    variants = {key: (Named("v"), Named("w")) for key in seconds}
    results = {key: {"v": measured("v", second), "w": measured("w", second)} for key, second in seconds.items()}
    return Tables(variants, results)  # type: ignore[arg-type]


def errors(ratio: float, **in_network: float) -> TableErrors:
    """The errors of layers that take 1 ms alone."""
    times = InNetworkTimes({(key, "v"): each for key, each in in_network.items()})
    return TableErrors.of(tables(**dict.fromkeys(in_network, 1e-3)), times, ratio)


def test_a_network_in_which_all_layers_are_slower_by_the_same_ratio_tells_their_order() -> None:
    assert errors(1.0, a=2e-3, b=2e-3).of_a_swap == pytest.approx(0.0, abs=1e-12)
    assert errors(1.0).of_a_swap == 0.0


def test_ratios_that_vary_make_scaled_times_uncertain() -> None:
    found = errors(1.0, a=1e-3, b=1e-3 * math.exp(0.2))
    assert found.network == 0.0
    # Near the half of the distance of the logarithms, as both weigh about the same.
    assert found.of_a_swap == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("ratio", [1.1, 1 / 1.1])
def test_a_network_that_takes_another_time_than_its_layers_makes_all_uncertain(ratio: float) -> None:
    found = errors(ratio, a=1e-3, b=1e-3)
    assert found.network == pytest.approx(math.log(1.1))
    assert found.of_a_swap == pytest.approx(math.sqrt(2) * math.log(1.1))


def test_what_two_plans_do_alike_has_no_error() -> None:
    found = errors(1.1, a=1e-3, b=1e-3)
    plan = {("a", "v"): 1.0, ("b", "v"): 5.0}
    assert found.of_difference(plan, plan) == 0.0
    swapped = {("a", "w"): 2.0, ("b", "v"): 5.0}
    expected = math.hypot(1.0 * math.log(1.1), 2.0 * math.log(1.1))
    assert found.of_difference(plan, swapped) == pytest.approx(expected)


def test_samples_that_vary_add_to_the_error_of_what_was_measured_alone_only() -> None:
    noisy = measured("w", *(1e-3 * (1 + 0.1 * number) for number in range(9)))
    alone = tables(a=1e-3)
    alone = Tables(alone.variants, {"a": {**alone.measured["a"], "w": noisy}})
    found = TableErrors.of(alone, InNetworkTimes({("a", "v"): 1e-3}), 1.0)
    assert sampling_error(noisy) == pytest.approx(0.4e-3 / 3 / 1.2e-3)
    assert found.of_difference({("a", "v"): 1.0}, {}) == 0.0
    assert found.of_difference({("a", "w"): 1.0}, {}) == pytest.approx(sampling_error(noisy))
    assert sampling_error(measured("v", 1e-3)) == 0.0
