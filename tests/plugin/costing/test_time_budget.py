"""What there is time for, and what is said when there is none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.frontend.imported_model import ImportedModel
from sartor.open_sizes import compilation
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.settings.size_range import SizeRange
from sartor.several import places, switching
from sartor.several.places import open_places
from sartor.several.switching import compile_switching
from sartor.tuning.selection.problem.cost import Objective


@pytest.fixture
def imported(imported_of: Callable[[str], ImportedModel]) -> ImportedModel:
    return imported_of("residual")


def test_without_a_budget_there_is_time_for_all(imported: ImportedModel) -> None:
    budget = TimeBudget.of(None)
    assert budget.tuning_deadline(imported) is None
    assert budget.allows_timing_in_network(imported)
    assert budget.allows_build(imported, 1e6)


def test_tuning_stops_before_the_end(imported: ImportedModel) -> None:
    budget = TimeBudget.of(100.0)
    deadline = budget.tuning_deadline(imported)
    assert deadline is not None
    assert time.monotonic() < deadline < budget.end
    assert not budget.is_spent
    assert TimeBudget.of(-1.0).is_spent


def test_what_follows_tuning_takes_as_long_as_it_took_before(imported: ImportedModel) -> None:
    budget = TimeBudget.of(100.0).until_finished(30.0)
    assert budget.tuning_deadline(imported) == pytest.approx(budget.end - 30.0)
    assert budget.part(2).finishing == 30.0


def test_of_a_spent_budget_nothing_is_left() -> None:
    budget = TimeBudget.of(100.0)
    assert budget.leaves(90.0)
    assert not budget.leaves(110.0)
    assert budget.spent().is_spent
    assert budget.spent().is_bounded
    assert not budget.spent().leaves(0.0)


def test_plans_share_a_budget() -> None:
    whole = TimeBudget.of(100.0)
    part = whole.part(2)
    assert 49.0 < part.end - time.monotonic() <= 50.0
    assert part.seconds == 100.0
    assert TimeBudget.of(None).part(2) == TimeBudget.of(None)
    assert TimeBudget.of(-1.0).part(2).is_spent


def test_nodes_that_are_alike_take_less_than_kinds_of_layers(imported: ImportedModel) -> None:
    """Ten thousand nodes of a few kinds are built in about a minute, as their layers share code."""
    many = replace(imported, node_count=10_000)
    assert TimeBudget.of(100.0).allows_build(many, None)
    assert not TimeBudget.of(40.0).allows_build(many, None)
    layers = [
        replace(imported.graph.layers[0], task=replace(imported.graph.layers[0].task, key=str(number)))
        for number in range(1000)
    ]
    kinds = replace(imported, graph=replace(imported.graph, layers=tuple(layers)))
    assert not TimeBudget.of(100.0).allows_build(kinds, None)


def test_another_build_has_to_fit_by_what_one_took(imported: ImportedModel) -> None:
    budget = TimeBudget.of(60.0)
    assert budget.allows_build(imported, None)
    assert budget.allows_build(imported, 40.0)
    assert not budget.allows_build(imported, 50.0)
    assert not TimeBudget.of(1.0).allows_build(imported, None)


class _OpenedError(Exception):
    """Ends a compilation as soon as it has workers."""


def _open(config: CompileConfig, model: Path) -> None:
    compile_open(model, model.with_suffix(".vmfb"), OpenConfig(config, {"x": (SizeRange(1, 8), 3)}))


def _switching(config: CompileConfig, model: Path) -> None:
    of_first = replace(config, objective=Objective.COLD_LATENCY)
    compile_switching(model, model.with_suffix(".vmfb"), of_first)


def _several(config: CompileConfig, _: Path) -> None:
    with ExitStack() as stack:
        open_places(config, [config.target], stack)


@pytest.mark.parametrize(("module", "compiled"), [(compilation, _open), (switching, _switching), (places, _several)])
def test_within_a_budget_no_compilation_waits_for_others(
    module: ModuleType,
    compiled: Callable[[CompileConfig, Path], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    ends: list[float] = []

    def opened(*_: Any, end: float = math.inf) -> None:
        ends.append(end)
        raise _OpenedError

    monkeypatch.setattr(module, "open_workspace", opened)
    (tmp_path / "net.onnx").touch()
    for seconds in (60.0, None):
        config = CompileConfig(threads=1, database=tmp_path / "t.db", time_budget=seconds)
        with pytest.raises(_OpenedError):
            compiled(config, tmp_path / "net.onnx")
    assert ends == [-math.inf, math.inf]
