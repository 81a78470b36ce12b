"""Where a compilation measures, and first executions in the cost tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import pytest

from sartor.cli.commands.worker import worker
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.costing import resource_costs
from sartor.costing.machines import Machines, machines_of
from sartor.costing.resource_costs import measure_starts
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import tables_of

WORKERS = CompileConfig(threads=3, workers="tcp://127.0.0.1:9")


@pytest.fixture
def no_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Dask were not installed."""
    for name in [module for module in sys.modules if module.startswith("sartor.tuning.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "distributed", None)


def test_without_workers_this_machine_measures() -> None:
    with machines_of(CompileConfig(threads=3)) as machines:
        assert not machines.are_elsewhere
        assert machines.settings(WORKERS) is WORKERS


def test_workers_measure_with_their_own_number_of_threads_unless_one_is_named() -> None:
    there = Machines(threads=4)
    assert there.settings(WORKERS).threads == there.settings(WORKERS).target.threads == 4
    named = CompileConfig(threads=3, workers="tcp://127.0.0.1:9", fixes_threads=True)
    assert there.settings(named).threads == 3


@pytest.mark.usefixtures("no_dask")
def test_without_dask_one_sentence_says_what_to_install() -> None:
    with pytest.raises(UsageError, match=r"sartor\[cluster\]"), ExitStack() as stack:
        stack.enter_context(machines_of(WORKERS))
    with pytest.raises(UsageError, match=r"sartor\[cluster\]"):
        worker("tcp://127.0.0.1:9")


COLD = (Quantity.COLD,)


class _Tuner:
    """Knows its target alone."""

    target = Target.create("cpu", "sapphirerapids")


class _Pool:
    measures_elsewhere = False


def _measured(imported: ImportedModel, tables: Tables, quantities: Iterable[Quantity] = COLD) -> Tables:
    pool = cast(WorkerPool, _Pool())
    return measure_starts(tables, imported, cast(Tuner, _Tuner()), pool, tuple(quantities))


def _tables(imported: ImportedModel) -> Tables:
    """The first variant of each task is the fastest, and each later one takes a tenth longer and reads a byte less."""
    found = tables_of(imported, lambda task, descriptor: 1.0)
    measured = {
        key: {
            name: replace(each, samples=(1.0 + index / 10,), packed_bytes=1000 - index)
            for index, (name, each) in enumerate(of_task.items())
        }
        for key, of_task in found.measured.items()
    }
    return replace(found, measured=measured, loading=1e9)


def test_variants_have_what_was_measured_or_the_most_of_their_layer(
    imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = imported_of("lenet")
    tables, asked = _tables(imported), list[BenchmarkCase]()

    def first_runs(cases: Iterable[BenchmarkCase], *_: Any) -> dict[tuple[str, str], float]:
        asked.extend(cases)
        pairs = ((case.key, case.variants[:2]) for case in asked)
        return {(key, each.descriptor): 0.25 * (1 + place) for key, two in pairs for place, each in enumerate(two)}

    monkeypatch.setattr(resource_costs, "first_runs", first_runs)
    found = _measured(imported, tables)
    assert asked
    for case in asked:
        names = [variant.descriptor for variant, _ in tables.usable(case.key)]
        starts = [found.starting[case.key, name] for name in names]
        assert starts == [0.25, *[0.5] * (len(names) - 1)]
    problem = selection_problem(imported.graph, found, "cpu", Objective.COLD)
    costs = [choice.cost for node in problem.nodes for choice in node.choices if choice.name != "outside"]
    assert {cost.starting for cost in costs} <= {0.0, 0.25, 0.5}
    assert any(cost.starting for cost in costs)
    values = [cost.value(Objective.COLD) for cost in costs]
    assert values == pytest.approx([cost.latency + cost.cold + cost.starting for cost in costs])


def test_what_reads_least_is_measured_however_slow_it_is(
    imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = imported_of("lenet")
    tables, asked = tables_of(imported, lambda task, descriptor: 1.0), list[BenchmarkCase]()
    measured = {
        key: {
            name: replace(each, samples=(1.0 + 9 * (index == last) + index / 1000,), packed_bytes=100 - (index == last))
            for last in [len(of_task) - 1]
            for index, (name, each) in enumerate(of_task.items())
        }
        for key, of_task in tables.measured.items()
    }

    def first_runs(cases: Iterable[BenchmarkCase], *_: Any) -> dict[tuple[str, str], float]:
        asked.extend(cases)
        return {}

    monkeypatch.setattr(resource_costs, "first_runs", first_runs)
    _measured(imported, replace(tables, measured=measured))
    for case in asked:
        names = [variant.descriptor for variant, _ in tables.usable(case.key)]
        own = [variant.descriptor for variant in case.variants]
        assert own[0] == names[0]
        assert own[-1] == names[-1]
        assert len(own) <= 10


def test_variants_of_another_device_are_not_executed_on_the_cpu(
    imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = imported_of("lenet")
    tables, asked = _tables(imported), list[BenchmarkCase]()
    key = next(key for key, variant in tables.variants.items() if len(variant) > 1)
    first, *others = tables.variants[key]
    there = replace(first, device="vulkan")

    def first_runs(cases: Iterable[BenchmarkCase], *_: Any) -> dict[tuple[str, str], float]:
        asked.extend(cases)
        return {(case.key, variant.descriptor): 0.25 for case in asked for variant in case.variants}

    monkeypatch.setattr(resource_costs, "first_runs", first_runs)
    found = _measured(imported, replace(tables, variants={**tables.variants, key: (there, *others)}))
    (case,) = (each for each in asked if each.key == key)
    assert first.descriptor not in [variant.descriptor for variant in case.variants]
    assert (key, first.descriptor) not in found.starting
    assert found.starting[key, others[0].descriptor] == 0.25


@pytest.mark.parametrize("quantities", [(Quantity.LATENCY,), (Quantity.MEMORY,)])
def test_where_the_first_inference_does_not_count_nothing_is_measured(
    imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch, quantities: tuple[Quantity, ...]
) -> None:
    imported = imported_of("lenet")
    monkeypatch.setattr(resource_costs, "first_runs", lambda *_: pytest.fail("measured"))
    tables = _tables(imported)
    assert _measured(imported, tables, quantities) is tables
