"""Calls of a network of open sizes, and networks of the sizes of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sartor.codegen.analysis.sized_task import facts_at
from sartor.codegen.analysis.task_bounds import ideal_seconds, read_facts
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.dialect_passes.opening.open_graph import open_graph
from sartor.errors import UsageError
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.open_sizes import sized_nets
from sartor.open_sizes.calls import CallLog, Sizes, logged_calls, usual_calls
from sartor.open_sizes.sized_nets import SizedNets, SizedRuns
from sartor.profiling.network_runner import NetRunner
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from tests.open_models import feed_forward, saved

ROWS, BATCH, TOKENS = Symbol("rows", 1, 64), Symbol("batch", 1, 8), Symbol("tokens", 1, 512)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ImportedModel]:
    path = saved(feed_forward(), tmp_path_factory.mktemp("calls") / "model.onnx")
    found = {rows: run_import(path, {"x": (rows, 24)}, None) for rows in (64, 61, 7)}
    return {rows: model for rows, model in found.items() if isinstance(model, ImportedModel)}


@pytest.fixture(scope="module")
def graph(models: dict[int, ImportedModel]) -> LayerGraph:
    one, other = (models[rows] for rows in (64, 61))
    return open_graph((one.graph, one.weights), (other.graph, other.weights), Fit((ROWS,), (61,)))


def test_facts_at_a_size_are_those_of_the_task_with_that_size(
    graph: LayerGraph, models: dict[int, ImportedModel]
) -> None:
    for layer, fixed in zip(graph.layers, models[7].graph.layers, strict=True):
        assert read_facts(facts_at(layer.task, {"rows": 7})) == read_facts(task_facts(fixed.task))


def test_calls_are_the_rarer_the_longer_they_take(graph: LayerGraph) -> None:
    calls = usual_calls(graph, (ROWS,))
    assert [call.by_name for call in calls] == [{"rows": 64}, {"rows": 1}, {"rows": 9}]
    seconds = [sum(ideal_seconds(facts_at(layer.task, call.by_name)) for layer in graph.layers) for call in calls]
    spent = [call.share * taken for call, taken in zip(calls, seconds, strict=True)]
    assert spent == pytest.approx([spent[0]] * 3)
    assert sum(call.share for call in calls) == pytest.approx(1)


def test_a_log_is_cut_in_parts_of_as_much_work() -> None:
    counts: dict[Sizes, int] = {(("rows", rows),): 60 // rows for rows in (1, 2, 3, 4, 5, 6, 10, 12)}
    calls = logged_calls(counts, (ROWS,))
    assert calls[0] == SizedCall((("rows", 64),), 0.0)
    assert [call.by_name["rows"] for call in calls[1:]] == [1, 4, 10]
    assert sum(call.share for call in calls) == pytest.approx(1)
    assert calls[1].share == pytest.approx((60 + 30 + 20) / sum(counts.values()), abs=0.1)
    # One size alone, the largest, stands for all.
    assert logged_calls({(("rows", 64),): 3}, (ROWS,)) == (SizedCall((("rows", 64),), 1.0),)


def test_a_log_has_the_sizes_of_a_call_on_each_line(tmp_path: Path) -> None:
    log = tmp_path / "lengths.txt"
    log.write_text("# of one day\n\ntokens=77 batch=1: 12\nbatch=2 tokens=5\nbatch=1 tokens=77\n")
    counts = CallLog(log).counts((BATCH, TOKENS))
    assert counts == {(("batch", 1), ("tokens", 77)): 13, (("batch", 2), ("tokens", 5)): 1}
    log.write_text("5\n5\n64 : 2\n")
    assert CallLog(log).counts((ROWS,)) == {(("rows", 5),): 2, (("rows", 64),): 2}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no calls"),
        ("tokens=5\n", r"line 1 .* is 'tokens=5', expected .* 'batch=8 tokens=512'"),
        ("batch=1 tokens=5 batch=1", "expected the sizes of a call"),
        ("batch=1 tokens=5 x", "expected the sizes of a call"),
        ("batch=1 tokens=5: many", "expected the sizes of a call"),
        ("5 7", "expected the sizes of a call"),
        ("batch=1 tokens=513", r"line 1 .* has tokens=513, which is not in the range tokens=1\.\.512"),
    ],
)
def test_a_log_that_tells_no_sizes_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    log = tmp_path / "lengths.txt"
    log.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        CallLog(log).counts((BATCH, TOKENS))


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        CallLog(tmp_path / "none.txt").counts((ROWS,))


def test_small_ranges_have_fewer_calls(graph: LayerGraph) -> None:
    calls = usual_calls(graph, (Symbol("rows", 1, 2),))
    assert [call.by_name for call in calls] == [{"rows": 2}, {"rows": 1}]


BUILD: Any = SimpleNamespace(digest="d", path=Path("net.vmfb"))


class Fixed(NetRunner):
    """A runner whose networks take a known time."""

    def __init__(self, seconds: float, status: Status = Status.OK) -> None:
        self._seconds, self._status = seconds, status
        self.verified = 0
        self.asked = list[float]()

    def profile(self, builds: object) -> dict[str, NetRun]:
        return {"d": NetRun(self._status, (self._seconds, 2 * self._seconds), 1e-7 * self._seconds)}

    def verify(self, build: object) -> NetRun:
        self.verified += 1
        return NetRun(self._status, (), 1e-3 * self._seconds)

    def with_threads(self, build: object, counts: object) -> dict[int, tuple[float, ...]]:
        return {1: (self._seconds,), 2: (self._seconds / 2,)}

    def dispatches(self, builds: Sequence[tuple[object, float]], passes: int) -> dict[str, list[tuple[Dispatch, ...]]]:
        self.asked += [seconds for _, seconds in builds]
        return {"d": [(Dispatch("a", 2, self._seconds), Dispatch("b", 1, 1.0))]}


def nets(monkeypatch: pytest.MonkeyPatch, *others: tuple[float, Fixed], narrow: bool = False) -> SizedNets:
    largest = Fixed(8.0)
    for name in ("profile", "verify", "with_threads", "dispatches"):
        monkeypatch.setattr(NetRunner, name, lambda self, *given, name=name: getattr(Fixed, name)(largest, *given))
    monkeypatch.setattr(NetRunner, "__init__", lambda *_, **__: None)
    runs = [SizedRuns(SizedCall((("n", index),), share), each) for index, (share, each) in enumerate(others)]
    nothing: Any = None
    found = SizedNets(nothing, nothing, nothing, 0.25, runs)
    monkeypatch.setattr(SizedNets, "budget", ErrorBudget(RELATIVE, 1e-2, narrow=narrow))
    return found


def test_times_are_means_over_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nets(monkeypatch, (0.75, Fixed(4.0)), (0.0, Fixed(1000.0)))
    run = found.profile([BUILD])["d"]
    assert run.samples == (5.0, 10.0)
    assert run.error == pytest.approx(8e-7)
    assert found.with_threads(BUILD, [1, 2]) == {1: (5.0,), 2: (2.5,)}
    assert found.dispatches([(BUILD, 5.0)], 3) == {"d": [(Dispatch("a", 2, 5.0), Dispatch("b", 1, 1.0))]}


def test_layers_are_timed_as_often_as_the_time_of_each_size_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Fixed(0.5)
    found = nets(monkeypatch, (0.75, small))
    found.dispatches([(BUILD, 6.0)], 3)
    # Of a build that an earlier compilation timed the most is known.
    assert small.asked == [8.0]
    found.profile([BUILD])
    found.dispatches([(BUILD, 6.0)], 3)
    assert small.asked == [8.0, NetRun(Status.OK, (0.5, 1.0)).seconds]


def test_a_network_that_fails_at_one_size_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nets(monkeypatch, (0.75, Fixed(4.0, Status.CRASHED)))
    assert found.profile([BUILD])["d"].status is Status.CRASHED


def test_what_rounds_is_verified_with_all_sizes_before_it_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    small, least = Fixed(4.0), Fixed(12.0)
    assert nets(monkeypatch, (0.75, small), (0.0, least)).verify(BUILD).error == 8e-3
    assert (small.verified, least.verified) == (0, 0)
    found = nets(monkeypatch, (0.75, small), (0.0, least), narrow=True)
    assert found.verify(BUILD).error == 12e-3
    assert (small.verified, least.verified) == (1, 1)


def test_what_fails_with_another_size_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    last = Fixed(1.0)
    found = nets(monkeypatch, (0.0, Fixed(1.0, Status.CRASHED)), (0.0, last), narrow=True)
    assert found.verify(BUILD).status is Status.CRASHED
    assert not last.verified


def test_what_rounds_is_verified_in_calls_that_keep_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float | None]()

    class Calls:
        def judged_calls(self, _build: object, run: NetRun, *_: object) -> NetRun:
            asked.append(run.error)
            return replace(run, error=0.5)

    found = nets(monkeypatch, (0.0, Fixed(12.0)), narrow=True)
    monkeypatch.setattr(found, "_verifier", Calls(), raising=False)
    monkeypatch.setattr(found, "_caching", "a model")
    assert found.verify(BUILD).error == 0.5
    assert asked == [12e-3]


def test_calls_of_files_with_another_plan_may_be_as_far_off_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nets(monkeypatch, narrow=False)
    for name in ("_builder", "_samples", "_example", "_verifier"):
        monkeypatch.setattr(found, name, None, raising=False)
    made = list[ErrorBudget]()

    def verifier(*given: Any) -> str:
        made.append(given[2])
        return "another"

    monkeypatch.setattr(sized_nets, "Verifier", verifier)
    for wide, expected in ((1e-3, None), (2e-2, "another")):
        judge: Any = found.accepting(ErrorBudget(RELATIVE, wide))._verifier
        assert judge == expected
    assert [budget.accepted for budget in made] == [2e-2]
    # Runs of single calls are judged as before.
    assert found.accepting(made[0]).budget == found.budget
