"""A fused kernel is chosen by all its members if that is cheaper than what they cost apart, and by none if not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from benchmarks.selection import exhaustive
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import FUSED_ROUTINES, routines_for
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.fuse_layers import find_fusions
from sartor.errors import InfeasibleError
from sartor.tuning.cost_tables import problem_builder
from sartor.tuning.cost_tables.fused_choices import chosen_layers, is_inside, member_choices
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import pbqp
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.problem.problem import Choice, Problem
from sartor.tuning.selection.problem.selection import Selection, evaluate
from sartor.tuning.selection.programming import ilp
from sartor.tuning.transfers.conversions import adapts_between
from tests.importing import ImportedOf
from tests.tuning.selection.all_selectors import ALL_SELECTORS

Times = Mapping[str, float]
MakeTables = Callable[[Times], Tables]

TARGET = Target.create("cpu")
EXACT = (auto.NAME, dprs.NAME, exhaustive.NAME, ilp.NAME, pbqp.NAME)
FIRST, SECOND = "apart1+joined1", "apart2+joined2"
MEMBERS = {FIRST: ("apart1", "joined1"), SECOND: ("apart2", "joined2")}
# Each layer alone takes so many seconds, in ONNX's layout.
ALONE = 1e-3
RESULT = 4096


@pytest.fixture(scope="module")
def graph(imported_of: ImportedOf) -> LayerGraph:
    return imported_of("separable").graph


@pytest.fixture(scope="module")
def variants(graph: LayerGraph) -> Mapping[str, tuple[Variant, ...]]:
    return list_candidates(graph, routines_for(()), TARGET, FUSED_ROUTINES).variants


def _measured(descriptor: str, seconds: float) -> Measurement:
    key = MeasurementKey("task", descriptor, "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, Status.OK, (seconds,))


@pytest.fixture(scope="module")
def tables(graph: LayerGraph, variants: Mapping[str, tuple[Variant, ...]]) -> MakeTables:
    """Tables in which fusions take the times given by name, and their stock lowering no time at all."""

    def make(times: Times) -> Tables:
        measured: dict[str, dict[str, Measurement]] = {}
        for layer in graph.layers:
            stock = variants[layer.task.key][0].descriptor
            measured[layer.task.key] = {stock: _measured(stock, ALONE)}
        for fusion in graph.fusions:
            key = fusion.layer.task.key
            stock = variants[key][0].descriptor
            kernel = next(each.descriptor for each in variants[key] if each.implementation.output.layout == "nhwc")
            if fusion.layer.name in times:
                measured[key] = {
                    stock: _measured(stock, 1e-9),
                    kernel: _measured(kernel, times[fusion.layer.name]),
                }
        return Tables(variants, measured)

    return make


def _problem(graph: LayerGraph, tables: Tables, *pins: Pin) -> Problem:
    return selection_problem(graph, tables, "cpu", Objective.LATENCY, pins)


def _choices(problem: Problem, name: str) -> tuple[Choice, ...]:
    return next(node.choices for node in problem.nodes if node.name == name)


def _fused(selection: Selection) -> set[str]:
    """Fusions that were chosen; none may be chosen by one member only."""
    found = set()
    for name, members in MEMBERS.items():
        chosen = {selection.choices[member].name.startswith(f"{name}: ") for member in members}
        assert len(chosen) == 1, "a fused kernel was chosen by half of its members"
        found |= {name} if chosen == {True} else set()
    return found


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize(
    ("times", "fused"),
    [
        ({}, set()),
        ({FIRST: 2.5e-3, SECOND: 2.5e-3}, set()),
        ({FIRST: 1.5e-3, SECOND: 2.5e-3}, {FIRST}),
        ({FIRST: 2.5e-3, SECOND: 1.5e-3}, {SECOND}),
        ({FIRST: 1.5e-3, SECOND: 1.5e-3}, {FIRST, SECOND}),
    ],
)
def test_what_is_cheaper_is_fused(
    solver: str, times: Times, fused: set[str], graph: LayerGraph, tables: MakeTables
) -> None:
    problem = _problem(graph, tables(times))
    selection = ALL_SELECTORS[solver](problem)
    assert _fused(selection) == fused
    apart = ALONE * (4 - 2 * len(fused)) + sum(times[name] for name in fused)
    assert selection.cost == pytest.approx(apart, rel=0.02)
    assert selection.optimal


def test_fusing_pays_up_to_what_the_members_cost(graph: LayerGraph, tables: MakeTables) -> None:
    """Conversions to the layout of the fused kernel count."""
    kept = exhaustive.select(_problem(graph, tables({}))).cost
    conversions = exhaustive.select(_problem(graph, tables({FIRST: ALONE}))).cost + ALONE - kept
    assert 0 < conversions < 0.1 * ALONE
    for factor, fused in ((0.999, {FIRST}), (1.001, set())):
        time = factor * (2 * ALONE - conversions)
        assert _fused(dprs.select(_problem(graph, tables({FIRST: time})))) == fused


@pytest.mark.parametrize("factor", [1, 4])
def test_what_is_within_a_fused_kernel_takes_no_more_memory_than_its_result(
    factor: int, graph: LayerGraph, tables: MakeTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of fused kernels count as if they were smaller than what is within."""
    fused = {fusion.layer.name for fusion in graph.fusions}
    monkeypatch.setattr(
        problem_builder,
        "_result_bytes",
        lambda layer, given: RESULT if layer.name in fused else factor * RESULT,
    )
    problem = _problem(graph, tables({FIRST: ALONE, SECOND: ALONE}))
    nodes = {node.name: node for node in problem.nodes}
    for inner, _ in MEMBERS.values():
        (inside,) = {choice.output for choice in nodes[inner].choices if is_inside(choice.output)}
        assert nodes[inner].output_bytes == factor * RESULT
        assert nodes[inner].bytes_in(inside) == RESULT


@pytest.mark.parametrize("name", ALL_SELECTORS)
@pytest.mark.parametrize("seconds", [0.5e-3, 1.5e-3, 2.5e-3])
def test_no_solver_fuses_by_half(name: str, seconds: float, graph: LayerGraph, tables: MakeTables) -> None:
    problem = _problem(graph, tables({FIRST: seconds, SECOND: seconds}))
    selection = ALL_SELECTORS[name](problem)
    _fused(selection)
    assert evaluate(problem, selection.assignment) is not None


def test_the_best_plans_are_all_whole(graph: LayerGraph, tables: MakeTables) -> None:
    plans = dprs.k_best(_problem(graph, tables({FIRST: 1.5e-3, SECOND: 1.7e-3})), 9)
    assert [_fused(plan) for plan in plans] == [{FIRST, SECOND}, {FIRST}, {SECOND}, set()]


def test_half_a_fusion_is_no_plan(graph: LayerGraph, tables: MakeTables) -> None:
    problem = _problem(graph, tables({FIRST: 1.5e-3}))
    best = exhaustive.select(problem)
    for member in MEMBERS[FIRST]:
        (other,) = [choice for choice in _choices(problem, member) if choice != best.choices[member]]
        mixed = replace(best.assignment, choices={**best.choices, member: other})
        assert evaluate(problem, mixed) is None


@pytest.mark.parametrize(
    ("pins", "seconds", "fused"),
    [
        ((Pin("apart1", "*/fused.*"),), 2.5e-3, {FIRST}),
        ((Pin("joined1", "*/fused.separable{*"),), 2.5e-3, {FIRST}),
        ((Pin("*1", "*/fused.*"),), 2.5e-3, {FIRST}),
        ((Pin("joined1", "*.stock"),), 0.5e-3, {SECOND}),
        ((Pin("apart2", "*.stock"),), 0.5e-3, {FIRST}),
        ((Pin("*", "*.stock"),), 0.5e-3, set()),
        ((Pin("apart1", "*/fused.*"), Pin("joined2", "*.stock")), 2.5e-3, {FIRST}),
    ],
)
def test_pins_of_a_member_hold_for_the_fusion(
    pins: tuple[Pin, ...], seconds: float, fused: set[str], graph: LayerGraph, tables: MakeTables
) -> None:
    problem = _problem(graph, tables({FIRST: seconds, SECOND: seconds}), *pins)
    for solver in EXACT:
        assert _fused(ALL_SELECTORS[solver](problem)) == fused


def test_pins_that_contradict_each_other_leave_nothing(graph: LayerGraph, tables: MakeTables) -> None:
    pins = Pin("apart1", "*/fused.*"), Pin("joined1", "*.stock")
    with pytest.raises(InfeasibleError, match=r"'apart1' fits its pins, it has cpu:f32/depthwise\.stock"):
        _problem(graph, tables({FIRST: 1.5e-3}), *pins)


def test_stock_code_of_both_is_no_choice(graph: LayerGraph, tables: MakeTables) -> None:
    problem = _problem(graph, tables({FIRST: 1.5e-3}))
    names = [choice.name for node in problem.nodes for choice in node.choices]
    assert sum("fused." in name for name in names) == 2
    assert not any("fused.stock" in name for name in names)


def test_the_first_member_has_the_cost_of_all(graph: LayerGraph, tables: MakeTables) -> None:
    problem = _problem(graph, tables({FIRST: 1.5e-3}))
    first, second = (_choices(problem, name)[-1] for name in MEMBERS[FIRST])
    assert (first.cost.latency, second.cost) == (1.5e-3, Cost())
    assert first.output == second.inputs[0]
    assert is_inside(first.output)
    # The window's input, and what is added to the product.
    assert [each.layout for each in (*first.inputs, *second.inputs[1:], second.output)] == ["nhwc"] * 3
    fusion = graph.fusions[0]
    whole = replace(first, name="other", inputs=(first.inputs[0], second.inputs[1]), output=second.output)
    assert member_choices(fusion, whole)["apart1"].output != first.output


def test_the_chosen_graph_has_a_variant_for_each_layer(graph: LayerGraph, tables: MakeTables) -> None:
    known = tables({FIRST: 1.5e-3, SECOND: 2.5e-3})
    applied, chosen = chosen_layers(graph, known.variants, dprs.select(_problem(graph, known)))
    assert [layer.name for layer in applied.layers] == [FIRST, "apart2", "joined2"]
    assert list(chosen) == [FIRST, "apart2", "joined2"]
    assert chosen[FIRST].descriptor.startswith("cpu:f32/fused.separable{")
    assert [chosen[name].descriptor for name in ("apart2", "joined2")] == [
        "cpu:f32/depthwise.stock",
        "cpu:f32/conv2d.stock",
    ]
    layouts = [(edge.consumer, edge.slot, kind.target.layout) for edge, kind in adapts_between(applied, chosen, "cpu")]
    assert layouts == [(FIRST, 0, "nhwc"), (FIRST, 1, "nhwc"), ("apart2", 0, "nchw")]


def test_names_may_look_like_those_of_choices(graph: LayerGraph, tables: MakeTables) -> None:
    names = {layer.name: f"a: {layer.name}+" for layer in graph.layers}

    def renamed(name: str | None) -> str | None:
        return names[name] if name else None

    layers = tuple(
        replace(
            layer,
            name=names[layer.name],
            inputs=tuple(replace(ref, source=renamed(ref.source)) for ref in layer.inputs),
        )
        for layer in graph.layers
    )
    outputs = tuple(
        replace(output, source=replace(output.source, source=renamed(output.source.source)))
        if output.source
        else output
        for output in graph.outputs
    )
    odd = find_fusions(LayerGraph(layers, graph.inputs, outputs))
    known = tables({FIRST: 1.5e-3})
    applied, chosen = chosen_layers(odd, known.variants, dprs.select(_problem(odd, known)))
    assert [layer.name for layer in applied.layers] == ["a: apart1++a: joined1+", "a: apart2+", "a: joined2+"]
    assert set(chosen) == {layer.name for layer in applied.layers}


def test_what_only_stock_code_would_fuse_is_not_measured(
    graph: LayerGraph, variants: Mapping[str, tuple[Variant, ...]]
) -> None:
    fused = [fusion.layer.task.key for fusion in graph.fusions]
    assert [tuned_case.key for tuned_case in tuned_cases(graph, variants)] == list(graph.tasks())
    fewer = {**variants, fused[0]: variants[fused[0]][:1]}
    assert [tuned_case.key for tuned_case in tuned_cases(graph, fewer)] == [
        key for key in graph.tasks() if key != fused[0]
    ]
