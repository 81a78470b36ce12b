"""The sizes for which plans are selected: spread over the range, or by a log of calls."""

from __future__ import annotations

from pathlib import Path

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
from sartor.open_sizes.calls import CallLog, Sizes, logged_calls, usual_calls
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
