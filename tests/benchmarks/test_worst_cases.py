"""What choosing by worst cases costs, on times that follow a rule."""

from __future__ import annotations

from benchmarks.selection import worst_cases
from benchmarks.selection.worst_cases import _regrets, run
from sartor.tuning.search.cost_model import Sample
from tests.tuning.search.searched_tasks import KERNELS, STOCK, facts, listed, samples, task


def test_rules_are_compared_on_tasks_and_families_that_no_model_has_seen() -> None:
    tasks = (task(f"{channels}x{side}", channels, side) for channels in (64, 128, 512) for side in (7, 14, 28))
    rules = run(samples(*tasks))
    assert [(rule.held_out, rule.multiple) for rule in rules[:4]] == [("tasks", each) for each in (0.0, 0.5, 1.0, 2.0)]
    assert {rule.tasks for rule in rules[:4]} == {9}
    assert all(1 <= rule.mean <= rule.high <= rule.worst for rule in rules[:4])
    assert [rule.held_out for rule in rules[4:]] == ["families of kernels"] * 4


def test_a_variant_of_which_little_is_known_is_chosen_less() -> None:
    stock, kernel = listed(STOCK, KERNELS[0])
    text = facts(64, 7)
    known, unknown = Sample(text, stock, 2.0), Sample(text, kernel, 1.0)
    predicted = {id(known): 1.15, id(unknown): 1.0}
    chosen = [
        _regrets({text: [known, unknown]}, predicted, lambda sample: 0.2 if sample is unknown else 0.0, multiple)
        for multiple in worst_cases._MULTIPLES
    ]
    assert chosen == [[1.0], [1.0], [2.0], [2.0]]
