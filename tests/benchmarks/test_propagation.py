"""Fractions that plans are fitted with are heard, and the expected one is that of other networks."""

from __future__ import annotations

import logging

import pytest

from benchmarks.propagation import Fit, listening, of_networks, rows_of
from sartor.planning import simulated_error

FOUND = [
    Fit("a", "int8", 0.01, 0.008, 0.3),
    Fit("a", "bf16", 0.01, 0.002, 0.1),
    Fit("b", "int8", 0.01, 0.009, 0.05),
    Fit("c", "mixed", 0.05, 0.01, 0.6),
]


def test_what_is_fitted_is_heard_and_nothing_afterwards() -> None:
    log = logging.getLogger(simulated_error.__name__)
    with listening() as found:
        log.info(simulated_error.FITTED, 0.012, 0.35)
        log.info("something else: %g", 0.5)
    log.info(simulated_error.FITTED, 1.0, 1.0)
    assert found == [(0.012, 0.35)]
    assert not log.handlers


def test_a_network_counts_once_and_is_not_among_those_that_it_is_compared_with() -> None:
    assert of_networks(FOUND) == pytest.approx({"a": 0.2, "b": 0.05, "c": 0.6})
    *rows, last = rows_of(FOUND)
    assert [row[-1] for row in rows] == pytest.approx([0.325, 0.325, 0.4, 0.125])
    assert (last[0], last[-1]) == ("median of networks", None)
    assert last[-2] == pytest.approx(0.2)
