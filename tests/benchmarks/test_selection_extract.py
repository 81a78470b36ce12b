"""What the experiments on selection read, choose and show."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from benchmarks.propagation import Fit, listening, of_networks, rows_of
from benchmarks.selection import worst_cases
from benchmarks.selection.extract import NotTunedError, extract
from benchmarks.selection.learning import Progress
from benchmarks.selection.sampling import Quality
from benchmarks.selection.settings import CHOSEN, KNOWN, OWN, Replay, best_setting, settings_around, summaries
from benchmarks.selection.settings import _chosen as chosen
from benchmarks.selection.solvers import Solved
from benchmarks.selection.summaries import (
    learning_summary,
    plain,
    sampling_summary,
    settings_summary,
    solver_summary,
    transfer_summary,
)
from benchmarks.selection.transfer import Transfer
from benchmarks.selection.worst_cases import _regrets, run
from benchmarks.zoo import write
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.frontend.loading import import_network
from sartor.planning import simulated_error
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.search_settings import INFORMED, SearchSettings
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.search.searched_tasks import KERNELS, STOCK, facts, listed, samples, task


def _fill(store: Store, pool: WorkerPool, config: CompileConfig, path: Path) -> None:
    """A microsecond for candidate 0 of each task, two for the next, and so on."""
    imported = import_network(path, config.importing, pool, silent)
    tuner = make_tuner(store, pool, config.target, silent)
    for case in tuned_cases(imported.graph, find_candidates(imported, config.planning).variants):
        for index, variant in enumerate(case.variants):
            key = tuner.key(case, variant.descriptor)
            store.put(Measurement(key, Status.OK, (1e-6 * (index + 1),)))


def test_a_tuned_network_has_tables(pool: WorkerPool, tmp_path: Path) -> None:
    config = CompileConfig(threads=1)
    with Store.in_memory() as store:
        _fill(store, pool, config, write("lenet5", tmp_path))
        tables = extract("lenet5", store, pool, config)
    assert (tables.network, tables.threads, tables.measured_adapts) == ("lenet5", 1, 0)
    assert tables.tasks.keys() <= {node.name for node in tables.problem.nodes}
    for node in tables.problem.nodes:
        if node.name in tables.tasks:
            assert node.choices[0].cost.latency == pytest.approx(1e-6)
            assert tables.tasks[node.name].variants[0].descriptor == node.choices[0].name


def test_a_network_that_was_not_tuned_is_said_to_be(pool: WorkerPool) -> None:
    with Store.in_memory() as store, pytest.raises(NotTunedError, match=r"'lenet5'.*tune the network"):
        extract("lenet5", store, pool, CompileConfig(threads=1))


LOSSES = {
    OWN: {"vgg16": (100, 2.0), "vgg19": (100, 2.0), "lenet5": (10, 1.0)},
    "share 0.5": {"vgg16": (105, 0.0), "vgg19": (105, 0.0), "lenet5": (10, 3.0)},
    "rounds 3": {"vgg16": (300, 0.0), "vgg19": (300, 0.0), "lenet5": (30, 0.0)},
}
ROWS = [
    Replay(network, KNOWN, setting, 400, measured, loss)
    for setting, found in LOSSES.items()
    for network, (measured, loss) in found.items()
]


def test_one_number_differs_from_the_own_limits() -> None:
    found = settings_around(INFORMED)
    assert found[OWN] == INFORMED
    assert found["rounds 1"].rounds == 1
    assert "rounds 2" not in found
    assert found["near 1.1"].informed.near == 1.1
    assert found["shares none"].informed.shares == ()
    own = _numbers(INFORMED)
    for key, each in found.items():
        changed = {name for name, value in _numbers(each).items() if value != own[name]}
        assert changed == ({key.partition(" ")[0]} if key != OWN else set())
    assert not any(key.startswith(("shares", "families", "near")) for key in settings_around(SearchSettings()))


def _numbers(settings: SearchSettings) -> dict[str, object]:
    return {**vars(settings), "informed": None, **vars(settings.informed)}


def test_the_best_of_others_is_chosen_if_it_does_not_measure_many_more() -> None:
    assert best_setting(ROWS, KNOWN) == "share 0.5"
    assert best_setting([row for row in ROWS if row.network == "lenet5"], KNOWN) == OWN


def test_a_family_is_held_out_together() -> None:
    found = {each.network: each for each in chosen(ROWS)}
    assert {each.setting for each in found.values()} == {CHOSEN}
    assert {name: each.loss for name, each in found.items()} == {"vgg16": 2.0, "vgg19": 2.0, "lenet5": 3.0}


def test_what_is_shown_is_a_share_and_the_losses() -> None:
    shown = {setting: (share, mean, most) for setting, share, mean, most in summaries(ROWS, KNOWN)}
    assert shown[OWN] == pytest.approx((17.5, 5 / 3, 2.0))
    _, rows = settings_summary(ROWS)
    assert [row[:2] for row in rows] == [(KNOWN, each) for each in LOSSES]


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
