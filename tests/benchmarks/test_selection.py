"""The experiments on the selection engine, on inputs as small as they can be."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.selection import exhaustive, growth, layouts, learning, results, sampling, solvers, transfer
from benchmarks.selection.extract import estimated_adapts
from benchmarks.selection.network_tables import NetworkTables, TaskTimes, TimedVariant, load, load_all, save
from benchmarks.selection.results import Axes, Line
from benchmarks.selection.shipping import extended, joined
from benchmarks.selection.synthetic import CELLS, Shape, synthetic
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.routine_registry import described
from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.shipped.contributed import shippable
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.programming import ilp
from sartor.tuning.store.store import Store

NCHW, NHWC, BLOCKED = (Schema("cpu", "f32", layout) for layout in ("nchw", "nhwc", "nchw16c"))
IMAGE = TensorType((1, 16, 8, 8), "f32")
FILTER = TensorType((16, 16, 1, 1), "f32")
CONVOLUTION = f"""util.func public @layer(%image: {IMAGE}, %filter: {FILTER}) -> {IMAGE} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {IMAGE}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {IMAGE}) -> {IMAGE}
  %sum = linalg.conv_2d_nchw_fchw {{dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}}
      ins(%image, %filter : {IMAGE}, {FILTER}) outs(%start : {IMAGE}) -> {IMAGE}
  util.return %sum : {IMAGE}
}}"""


def _choice(name: str, inputs: int, schema: Schema, seconds: float) -> Choice:
    return Choice(name, (schema,) * inputs, schema, Cost(latency=seconds))


def _times(key: str, kind: LayerKind, count: int) -> TaskTimes:
    task = Task(key, kind, CONVOLUTION, (IMAGE,), (FILTER,), (IMAGE,))
    return TaskTimes(task, tuple(TimedVariant(f"cpu:f32/x.v{index}", 1.0 + index) for index in range(count)))


@pytest.fixture
def tables() -> NetworkTables:
    """input -> convolution -> map -> convolution -> output; blocks are fast, conversions cost 1 each."""
    offered = [("stock", NCHW, 10.0), ("last", NHWC, 4.0), ("blocked", BLOCKED, 3.0)]
    inner = tuple(_choice(name, 1, schema, seconds) for name, schema, seconds in offered)
    nodes = (
        Node("in", (_choice("outside", 0, NCHW, 0.0),)),
        *(Node(name, inner) for name in ("conv1", "map", "conv2")),
        Node("out", (_choice("outside", 1, NCHW, 0.0),)),
    )
    names = [node.name for node in nodes]
    edges = tuple(Edge(one, other, 0) for one, other in pairwise(names))
    schemas = (NCHW, NHWC, BLOCKED)
    adapts = {
        (edge, one, other): Cost(latency=1.0) for edge in edges for one in schemas for other in schemas if one != other
    }
    conv = _times("c", LayerKind.CONVOLUTION, 5)
    tasks = {"conv1": conv, "map": _times("m", LayerKind.TOLERANT, 2), "conv2": conv}
    return NetworkTables("tiny", "machine", "versions", 1, Problem(nodes, edges, adapts), tasks, 2, 1)


def test_tables_survive_a_file(tables: NetworkTables, tmp_path: Path) -> None:
    again = load(save(tables, tmp_path))
    assert (again.problem.nodes, again.problem.edges) == (tables.problem.nodes, tables.problem.edges)
    assert again.problem.adapts == tables.problem.adapts
    assert again.tasks == tables.tasks
    assert (again.network, again.threads, again.measured_adapts) == ("tiny", 1, 2)


def test_tables_keep_what_edges_share_and_schemas_inside_fused_kernels(tables: NetworkTables, tmp_path: Path) -> None:
    inside = Schema("cpu", "f32", "inside a+b: cpu:f32/fused.separable{unroll=2}")
    first = replace(tables.problem.nodes[1], choices=(_choice("fused", 1, inside, 1.0),))
    edges = tuple(replace(edge, result=0) for edge in tables.problem.edges)
    problem = Problem((tables.problem.nodes[0], first), edges[:1], {})
    again = load(save(replace(tables, problem=problem), tmp_path)).problem
    assert again.edges == problem.edges
    assert again.nodes == problem.nodes


def test_a_file_without_tables_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"network": "x"}')
    with pytest.raises(UsageError, match=r"odd\.json"):
        load_all(tmp_path)
    with pytest.raises(UsageError, match="there are no tables"):
        load_all(tmp_path / "none")


def test_unmeasured_conversions_take_the_speed_of_those_alike() -> None:
    def kind(pixels: int, target: Schema) -> AdaptKind:
        return AdaptKind(f"tensor<1x16x{pixels}x1xf32>", NCHW, target)

    measured = {kind(10, NHWC): 1.0, kind(10, BLOCKED): 2.0}
    asked = [kind(10, NHWC), kind(30, NHWC), kind(30, BLOCKED)]
    assert estimated_adapts(asked, measured) == {kind(30, NHWC): 3.0, kind(30, BLOCKED): 6.0}
    assert estimated_adapts(asked, {}) == {}


def test_solvers_are_compared_with_the_optimum(tables: NetworkTables) -> None:
    rows = {row.solver: row for row in solvers.run([tables], repeats=1)}
    assert rows[solvers.DEFAULT].milliseconds == pytest.approx(30e3)
    assert rows[solvers.ALONE].milliseconds == pytest.approx(11e3)
    assert all(rows[name].ratio == pytest.approx(1) and rows[name].proven for name in ("dprs", "ilp", "pbqp", "auto"))
    assert rows["greedy"].ratio >= 1


def test_a_kernel_of_two_layers_is_not_the_fastest_of_one(tables: NetworkTables) -> None:
    inside = Schema("cpu", "f32", "inside conv1+map: cpu:f32/fused.separable")
    first, second = (node for node in tables.problem.nodes if node.name in ("conv1", "map"))
    fused = {
        "conv1": replace(first, choices=(*first.choices, Choice("fused", (BLOCKED,), inside, Cost(latency=1.0)))),
        "map": replace(second, choices=(*second.choices, Choice("fused", (inside,), BLOCKED, Cost()))),
    }
    nodes = tuple(fused.get(node.name, node) for node in tables.problem.nodes)
    rows = {row.solver: row for row in solvers.run([replace(tables, problem=replace(tables.problem, nodes=nodes))], 1)}
    assert rows[solvers.ALONE].milliseconds == pytest.approx(11e3)
    assert rows["auto"].milliseconds == pytest.approx(6e3)


def test_searches_end_at_the_same_plan(tables: NetworkTables) -> None:
    rows = learning.run([tables], budgets=(2, 60), seeds=2)
    assert {row.search for row in rows} == {"qlearning", "random_search"}
    for search in ("qlearning", "random_search"):
        few, many = (row for row in rows if row.search == search)
        assert (few.episodes, many.episodes) == (2, 60)
        assert few.ratio >= many.ratio == pytest.approx(1)
        assert many.least <= many.ratio <= many.most
        assert many.spread == pytest.approx(0)


def test_layout_steps_pay_for_their_seams(tables: NetworkTables) -> None:
    (row,) = layouts.run([tables])
    assert row.baseline == pytest.approx(30e3)
    assert row.layout == pytest.approx((3 + 2 + 10 + 3 + 2) * 1e3)
    assert row.elimination == pytest.approx((3 + 3 + 3 + 2) * 1e3)
    assert row.channels_last == pytest.approx((4 + 4 + 4 + 2) * 1e3)
    assert row.global_search == row.elimination


def test_everything_is_found_once_everything_is_measured(tables: NetworkTables) -> None:
    job = next(iter(sampling.jobs([tables])))
    rows = sampling.replay(job, "worst first", lambda samples, rng: lambda times, names: names[::-1], (), 1, 3)
    assert [row.measured for row in rows] == [1, 2, 3, 5]
    assert [row.fraction for row in rows] == [0.2, 0.4, 0.6, 1.0]
    assert all(row.ratio == 1 for row in rows)


def test_a_search_that_measures_the_worst_stays_behind(tables: NetworkTables) -> None:
    times = TaskTimes(tables.tasks["conv1"].task, tables.tasks["conv1"].variants[::-1])
    job = sampling.Job("tiny", (times,), {"c": 2}, ())
    rows = sampling.replay(job, "listed", lambda samples, rng: lambda times, names: names, (), 1, 3)
    assert [row.ratio for row in rows] == [5, 4, 3, 1]


def test_all_ways_to_sample_are_compared(tables: NetworkTables) -> None:
    rows = sampling.run([tables], seeds=2, rounds=2)
    last = {row.method: row for row in rows}
    assert last.keys() == {
        sampling.RANDOM,
        sampling.MODEL,
        sampling.TRANSFER,
        sampling.TUNER,
        sampling.TUNER_TRANSFER,
    }
    assert all(last[method].fraction == 1 for method in (sampling.RANDOM, sampling.MODEL, sampling.TRANSFER))
    assert all(0 < row.fraction <= 1 and row.ratio >= 1 for row in rows)


@pytest.mark.parametrize("cell", CELLS)
def test_synthetic_nets_are_reproducible(cell: str) -> None:
    shape = Shape(cell, 12, 4, 3)
    one, other = synthetic(shape), synthetic(shape)
    assert (one.nodes, one.edges, one.adapts) == (other.nodes, other.edges, other.adapts)
    assert len(one.nodes) >= 12
    assert max(len(node.choices) for node in one.nodes) == 4


def test_a_synthetic_net_has_one_optimum() -> None:
    problem = synthetic(Shape("random", 5, 3, 2))
    assert ilp.select(problem).cost == pytest.approx(exhaustive.select(problem).cost)


def test_growth_covers_every_series() -> None:
    rows = growth.run(most_layers=10, most=4)
    assert {row.sweep for row in rows} == {"layers", "candidates", "width"}
    assert {row.cell for row in rows} == set(CELLS)
    assert all(row.proven and row.ratio == pytest.approx(1) for row in rows if row.solver in ("auto", "ilp"))


@dataclass(frozen=True)
class _Row:
    name: str
    value: float
    fine: bool
    nothing: float | None = None


def test_rows_as_csv_and_markdown(tmp_path: Path) -> None:
    rows = [_Row("a", 1 / 3, True), _Row("b", 2000.0, False)]
    with results.write_csv(rows, tmp_path / "deep" / "rows.csv").open() as file:
        assert list(csv.reader(file)) == [
            ["name", "value", "fine", "nothing"],
            ["a", "0.333333", "yes", ""],
            ["b", "2000", "no", ""],
        ]
    assert results.markdown(rows).splitlines()[2] == "| a | 0.333 | yes |  |"


def test_equal_rows_give_equal_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are an optional extra")
    panels = {Axes("title", "x", "y", log_x=True): [Line("one", [(1, 2), (10, 1)], [(1, 3), (1, 1)])]}
    one = results.plot_lines(panels, tmp_path / "one.svg").read_bytes()
    assert one == results.plot_lines(panels, tmp_path / "other.svg").read_bytes()
    assert b"title" in one
    bars = results.plot_bars(Axes("bars", "", "y"), ["a", "b"], {"first": [1, 2]}, tmp_path / "bars.svg")
    assert b"first" in bars.read_bytes()


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"sartor\[plots\]"):
        results.plot_lines({Axes("", "", ""): []}, tmp_path / "none.svg")


def test_the_command_says_where_tables_come_from(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.selection", "solvers", "--tables", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "tables --db" in done.stderr


def test_transfer_counts_what_searches_measure_and_what_their_plans_lose(tables: NetworkTables) -> None:
    row, other = transfer.run([tables, replace(tables, network="other")])
    assert (row.network, row.variants) == ("tiny", 7)
    for measured, lost in (
        (row.cold, row.cold_loss),
        (row.informed, row.informed_loss),
        (row.apart, row.apart_loss),
    ):
        assert 2 <= measured <= row.variants
        assert lost >= 0
    # The other network has the same layers, so it teaches nothing.
    assert (other.informed, other.informed_loss) == (other.cold, other.cold_loss)


def test_a_database_without_searches_ships_nothing() -> None:
    with Store.in_memory() as store, pytest.raises(UsageError, match="has 0 times"):
        shippable(store, Target.create("cpu"), 1)


def test_only_quiet_times_of_the_target_are_shipped() -> None:
    target = Target.create("cpu")
    facts = task_facts(_times("c", LayerKind.CONVOLUTION, 1).task)
    with Store.in_memory() as store:
        key = MeasurementKey("c", "", "s", store.hardware, 1, runtime_key(), target.key)
        for number in range(30):
            quiet = Measurement(replace(key, variant=f"cpu:f32/x.v{number}"), Status.OK, (1.0,), facts=facts)
            store.put(quiet)
            store.put(replace(quiet, key=replace(quiet.key, task="loud"), foreign_load=1.0))
            store.put(replace(quiet, key=replace(quiet.key, threads=2)))
        assert len(shippable(store, target, 1)) == 30


def test_times_of_tasks_that_were_measured_again_replace_the_packages() -> None:
    variant = described("cpu:f32/conv2d.direct{vectors=1}")
    new, known, other = Sample("a", variant, 1.0), Sample("a", variant, 2.0), Sample("b", variant, 3.0)
    assert extended([new], [known, other]) == [new, other]


def test_times_of_another_machine_join_those_of_tasks_that_the_package_lacks_at_its_pace() -> None:
    variants = [described(f"cpu:f32/conv2d.direct{{vectors={number}}}") for number in range(1, 5)]
    facts = [task_facts(_times(f"c{number}", LayerKind.CONVOLUTION, 1).task) for number in range(1)]
    sizes = [facts[0].replace("channels=", f"channels={number}") for number in range(1, 11)]
    known = [Sample(size, variant, 1.0) for size in sizes[:-1] for variant in variants]
    other = [Sample(size, variant, 3.0) for size in sizes for variant in variants]
    found = joined(known, other)
    assert found[: len(known)] == known
    assert [each.facts for each in found[len(known) :]] == [sizes[-1]] * len(variants)
    assert [each.seconds for each in found[len(known) :]] == pytest.approx([1.0] * len(variants), rel=0.2)
    assert joined([], other) == other
