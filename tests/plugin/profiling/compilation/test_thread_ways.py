"""Small networks are planned for one thread, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.profiling.compilation import thread_ways
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.thread_ways import Way, handing_seconds, saved_seconds, ways_of
from sartor.progress import silent
from tests.importing import ImportedOf

NOTHING: Any = None
ALL = Candidates({"all": ()}, ())


@pytest.fixture
def usual(imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch) -> Way:
    """A network of some layers, on a machine with two cores; nothing is asked about its layers."""
    monkeypatch.setattr("sartor.config.default_threads", lambda: 2)
    monkeypatch.setattr(thread_ways, "find_candidates", lambda *_, **__: ALL)
    monkeypatch.setattr(thread_ways, "foreseen", lambda *_: None)
    builder = SimpleNamespace(for_target=lambda target: target)
    begun: Any = SimpleNamespace(builder=builder, with_builder=lambda target: target)
    found = Candidacy(imported_of("residual"), NOTHING, NOTHING, NOTHING, begun)
    bench = Bench(NOTHING, Path(), NOTHING, TimeBudget(), silent)
    return Way(found, CompileConfig(threads=2), bench)


def saving(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """Let other threads save this part of what handing over takes."""
    monkeypatch.setattr(thread_ways, "saved_seconds", lambda graph, *_: part * handing_seconds(graph))


def test_more_threads_save_a_larger_part_of_what_layers_take(imported_of: ImportedOf) -> None:
    graph = imported_of("residual").graph
    assert saved_seconds(graph, WIDE, 1) == 0
    assert saved_seconds(graph, WIDE, 4) == pytest.approx(1.5 * saved_seconds(graph, WIDE, 2))
    twice = replace(graph, layers=graph.layers * 2)
    assert handing_seconds(twice) == 2 * handing_seconds(graph)
    assert saved_seconds(twice, WIDE, 2) == pytest.approx(2 * saved_seconds(graph, WIDE, 2))


@pytest.mark.parametrize(("part", "threads"), [(0.9, [2, 1]), (0.01, [2, 1]), (1.1, [2])])
def test_where_handing_over_may_take_longer_both_plans_are_predicted(
    usual: Way, monkeypatch: pytest.MonkeyPatch, part: float, threads: list[int]
) -> None:
    saving(monkeypatch, part)
    assert [way.threads for way in ways_of(usual)] == threads


@pytest.mark.parametrize(("part", "threads"), [(0.9, [2, 1]), (0.01, [1]), (1.1, [2])])
def test_without_time_one_plan_does_where_one_thread_is_faster_beyond_doubt(
    usual: Way, monkeypatch: pytest.MonkeyPatch, part: float, threads: list[int]
) -> None:
    saving(monkeypatch, part)
    hurried = replace(usual, bench=replace(usual.bench, time=TimeBudget.of(0.0)))
    assert [way.threads for way in ways_of(hurried)] == threads


def test_a_plan_for_one_thread_is_planned_as_such_and_says_so(usual: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    saving(monkeypatch, 0.5)
    first, one = ways_of(usual)
    assert (first.config, one.config.target.threads) == (usual.config, 1)
    begun: Any = one.network.begun
    assert begun == one.config.target, "its modules are built and run for one thread"
    assert (one.config.planning.workers, first.config.planning.workers) == (1, None)
    assert (one.is_narrow, one.with_all_variants.is_narrow, one.with_all_variants.network.candidates) == (
        True,
        False,
        ALL,
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"threads": 1},
        {"fixes_threads": True},
        {"threads": 3},
        {"memory_limit": "1GiB"},
        {"objective": "memory"},
        {"objective": "cold"},
    ],
)
def test_what_is_asked_for_counts(usual: Way, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    saving(monkeypatch, 0.0)
    given = replace(usual, config=replace(usual.config, **asked))
    assert ways_of(given) == [given]
