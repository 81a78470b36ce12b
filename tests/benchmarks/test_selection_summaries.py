"""What documents show of the comparisons' rows."""

from __future__ import annotations

import pytest

from benchmarks.selection.learning import Progress
from benchmarks.selection.sampling import Quality
from benchmarks.selection.solvers import Solved
from benchmarks.selection.summaries import learning_summary, plain, sampling_summary, solver_summary, transfer_summary
from benchmarks.selection.transfer import Transfer


def test_a_network_is_a_row_with_losses_against_the_optimum() -> None:
    ratios = {"candidate 0": 9.0, "fastest alone": 1.25, "greedy": 1.02, "pbqp": 1.0, "ilp": 1.0, "auto": 1.0}
    seconds = {"ilp": 0.5}
    rows = [Solved("a", 7, 1, name, 2.0 * ratio, ratio, seconds.get(name, 0.1), True) for name, ratio in ratios.items()]
    columns, shown = solver_summary(rows)
    assert list(shown) == [["a", 7, 1, 2.0, 25.0, 2.0, 0.0, 0.1, 0.5]]
    assert len(columns) == 9
    assert columns[2] == r"\|C\|"


def test_a_search_is_a_row_with_its_budgets() -> None:
    rows = [Progress("a", "random", episodes, 1.5, 0.25, 1.0, 2.0, 0.1 * episodes) for episodes in (50, 25)]
    columns, shown = learning_summary(rows)
    assert list(columns) == ["network", "search", "25 episodes", "50 episodes", "seconds"]
    assert list(shown) == [["a", "random", "1.50 ± 0.25", "1.50 ± 0.25", pytest.approx(5.0)]]


def test_a_search_that_has_ended_keeps_its_last_round() -> None:
    rows = [
        Quality("a", "tuner", 3, 0.2, 1.5, 1.5),
        Quality("a", "tuner", 6, 0.4, 1.01, 1.01),
        Quality("b", "tuner", 3, 0.3, 1.0, 1.0),
    ]
    _, shown = sampling_summary(rows)
    first, second = shown
    assert first == ["tuner", 0, pytest.approx(25.0), pytest.approx(25.0), pytest.approx(50.0), 1, 2]
    assert second == ["tuner", 1, pytest.approx(35.0), pytest.approx(0.5), pytest.approx(1.0), 2, 2]


def test_rounds_of_other_methods_begin_after_candidate_0_and_end_before_all_is_measured() -> None:
    fractions = (0.1, 0.4, 0.7, 1.0)
    rows = [Quality("a", "random", place, fraction, 2.0 - fraction, 2.0) for place, fraction in enumerate(fractions)]
    _, shown = sampling_summary(rows)
    assert [each[1:3] for each in shown] == [[1, pytest.approx(40.0)], [2, pytest.approx(70.0)]]


def test_the_last_row_of_a_transfer_is_the_sum_and_the_mean() -> None:
    rows = [Transfer("a", 10, 5, 1.0, 4, 2.0, 4, 3.0), Transfer("b", 20, 7, 0.0, 6, 1.0, 8, 0.0)]
    *_, last = transfer_summary(rows)[1]
    assert last == ["all, mean loss", 30, 12, 0.5, 10, 1.5, 12, 1.5]


def test_other_rows_are_shown_with_all_fields() -> None:
    columns, shown = plain([Quality("a", "tuner", 3, 0.2, 1.5, 1.6)])
    assert columns == ["network", "method", "measured", "fraction", "ratio", "most"]
    assert list(shown) == [["a", "tuner", 3, 0.2, 1.5, 1.6]]
