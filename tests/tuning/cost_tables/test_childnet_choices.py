"""Layers are made of children where that is cheaper, and nowhere else, whoever solves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.stock import Stock
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.split_layers import apply_choices
from sartor.errors import InfeasibleError
from sartor.tuning.cost_tables.fused_choices import chosen_layers
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds, tuned_cases
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import pbqp
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity, measures
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import evaluate
from sartor.tuning.selection.programming import ilp
from sartor.tuning.selection.registry import SELECTORS
from sartor.tuning.transfers.conversions import adapts_between
from tests import grouped_models as models
from tests.importing import imported_model

VULKAN = Target.create("vulkan")
EXACT = (auto.NAME, dprs.NAME, ilp.NAME, pbqp.NAME)
Seconds = Mapping[str, float]
# Far more than conversions are taken to cost.
ALONE = 1.0


@pytest.fixture(scope="module")
def graph() -> LayerGraph:
    """Without kernels ``conv2`` may be made of parts, or of patches and a product."""
    return imported_model(models.bottleneck(), target=VULKAN).graph


@pytest.fixture(scope="module")
def nested() -> LayerGraph:
    """Each part of ``y`` may be made of patches and a product in its turn."""
    return imported_model(models.wide_groups(), target=VULKAN).graph


def _variants(graph: LayerGraph) -> Mapping[str, tuple[Variant, ...]]:
    return list_candidates(graph, (Stock(), ChannelsLast()), VULKAN).variants


def _tables(graph: LayerGraph, seconds: Seconds, last: float = 1.0) -> Tables:
    """Tables in which layers take the times given by name, or ``ALONE``; with channels last, ``last`` times as long."""
    variants = _variants(graph)
    measured: dict[str, dict[str, Measurement]] = {}
    for layer in graph.all_layers():
        own = measured.setdefault(layer.task.key, {})
        for variant in variants[layer.task.key]:
            factor = last if variant.descriptor.endswith(".nhwc") else 1.0
            key = MeasurementKey("task", variant.descriptor, "source", "hardware", 1, "runtime", "vulkan")
            time = factor * seconds.get(layer.name, ALONE)
            own.setdefault(variant.descriptor, Measurement(key, Status.OK, (time,)))
    return Tables(variants, measured)


def _problem(graph: LayerGraph, tables: Tables, *pins: Pin) -> Problem:
    return selection_problem(graph, tables, "vulkan", Objective.LATENCY, pins)


def _chosen(graph: LayerGraph, tables: Tables, solver: str, *pins: Pin) -> list[str]:
    """Names of the layers of the best plan, which costs what they and the conversions between them cost."""
    selection = SELECTORS[solver](_problem(graph, tables, *pins))
    applied, variants = chosen_layers(graph, tables.variants, selection)
    total = sum(tables.seconds(layer.task.key, variants[layer.name].descriptor) or 0.0 for layer in applied.layers)
    total += sum(adapt_seconds(kind, tables) for _, kind in adapts_between(applied, variants, "vulkan"))
    assert selection.cost == pytest.approx(total, rel=1e-9)
    names = [layer.name for layer in applied.layers]
    assert apply_choices(graph, names) == applied
    return names


PATCHES = ["conv1", "conv2/patches", "conv2/product", "conv3"]
WHOLE = ["conv1", "conv2", "conv3"]
PARTS = ["conv1", "conv2/split", *(f"conv2/part{index}" for index in range(4)), "conv2/join", "conv3"]


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize(
    ("seconds", "names"),
    [
        ({}, WHOLE),
        ({"conv2": 2.1}, PATCHES),
        ({"conv2": 1.9}, WHOLE),
        ({"conv2/patches": 0.4, "conv2/product": 0.5}, PATCHES),
        ({"conv2/patches": 0.6, "conv2/product": 0.5}, WHOLE),
        ({"conv2/split": 0.1, "conv2/part0": 0.1, "conv2/join": 0.1}, PARTS),
        ({"conv2/split": 0.1, "conv2/part0": 0.1, "conv2/join": 0.6}, WHOLE),
        (
            {"conv2/split": 0.1, "conv2/part0": 0.1, "conv2/join": 0.1, "conv2/patches": 0.1, "conv2/product": 0.1},
            PATCHES,
        ),
    ],
)
def test_what_is_cheaper_is_chosen(solver: str, seconds: Seconds, names: list[str], graph: LayerGraph) -> None:
    assert _chosen(graph, _tables(graph, seconds), solver) == names


@pytest.mark.parametrize("last", [0.5, 0.999, 1.0, 1.5])
@pytest.mark.parametrize("seconds", [{}, {"conv2": 1.6}, {"conv2/split": 0.1, "conv2/part0": 0.1, "conv2/join": 0.1}])
def test_the_optimum_is_that_over_all_networks(seconds: Seconds, last: float, graph: LayerGraph) -> None:
    """Each way to replace the layer by children is a network of its own; the best plan is the best of all of theirs."""
    tables = _tables(graph, seconds, last)
    costs = [dprs.select(_problem(apply_choices(graph, names), tables)).cost for names in (WHOLE, PATCHES, PARTS)]
    problem = _problem(graph, tables)
    for solver in EXACT:
        found = SELECTORS[solver](problem)
        assert found.cost == pytest.approx(min(costs), rel=1e-9)
        assert found.optimal


@pytest.mark.parametrize("name", SELECTORS)
def test_every_solver_knows_childnets(name: str, graph: LayerGraph) -> None:
    problem = _problem(graph, _tables(graph, {"conv2": 20.0}, 0.9))
    selection = SELECTORS[name](problem)
    assert evaluate(problem, selection.assignment) is not None


@pytest.mark.parametrize("solver", [auto.NAME, dprs.NAME])
@pytest.mark.parametrize(("product", "made"), [(0.1, True), (0.95, False)])
def test_children_are_made_of_children(solver: str, product: float, made: bool, nested: LayerGraph) -> None:
    seconds = {"y": 30.0, "y/patches": 30.0, "y/part0/patches": 0.1, "y/part0/product": product}
    names = _chosen(nested, _tables(nested, seconds), solver)
    assert names[0] == "y/split"
    inner = [f"y/part{index}{part}" for index in range(16) for part in (("/patches", "/product") if made else ("",))]
    assert names == ["y/split", *inner, "y/join"]


@pytest.mark.parametrize(
    ("pins", "names"),
    [
        ((Pin("conv2", "*.stock"),), WHOLE),
        ((Pin("*", "*.stock"),), WHOLE),
        ((Pin("conv2", "*/childnet.*"),), PATCHES),
        ((Pin("conv2", "*/childnet.parts*"),), PARTS),
        ((Pin("conv2/product", "*/matmul.stock"),), PATCHES),
        ((Pin("*/part?", "*/conv2d.nhwc"),), PARTS),
    ],
)
def test_pins_hold_on_both_levels(pins: tuple[Pin, ...], names: list[str], graph: LayerGraph) -> None:
    tables = _tables(graph, {"conv2": 1.0})
    assert _chosen(graph, tables, dprs.NAME, *pins) == names


def test_pins_that_no_child_fits_leave_nothing(graph: LayerGraph) -> None:
    with pytest.raises(InfeasibleError, match="layer 'conv2'"):
        _problem(graph, _tables(graph, {}), Pin("conv2/product", "*/conv2d.direct*"))


def test_candidate_0_stays_the_first_choice(graph: LayerGraph) -> None:
    problem = _problem(graph, _tables(graph, {}))
    (node,) = (each for each in problem.nodes if each.name == "conv2")
    assert node.choices[0].name == "vulkan:f32/conv2d.stock"
    nets = [choice for choice in node.choices if choice.childnet is not None]
    assert {net.name.partition(" ")[0] for net in nets} == {
        "vulkan:f32/childnet.parts{parts=4}",
        "vulkan:f32/childnet.patches",
    }
    assert not any(choice.childnet is not None for choice in problem.nodes[0].choices)


def test_the_peak_of_a_childnet_leaves_out_what_its_layer_holds(graph: LayerGraph) -> None:
    tables = _tables(graph, {"conv2": 3.0})
    whole, patches = (
        measures(problem, dprs.select(problem).assignment)[Quantity.MEMORY]
        for problem in (_problem(graph, tables, Pin("conv2", glob)) for glob in ("*.stock", "*/childnet.patches*"))
    )
    gathered = models.CHANNELS * 9 * models.SIZE**2 * 4
    assert patches - whole == gathered


def test_tasks_of_children_are_measured(graph: LayerGraph) -> None:
    cases = [tuned_case.key for tuned_case in tuned_cases(graph, _variants(graph))]
    assert cases == list(dict.fromkeys(layer.task.key for layer in graph.all_layers()))
    alone = replace(graph, childnets=())
    assert len(cases) == len(alone.tasks()) + 5


def test_a_method_that_rounds_counts_with_its_error(graph: LayerGraph) -> None:
    inexact = replace(graph, childnets=tuple(replace(childnet, error=3e-6) for childnet in graph.childnets))
    problem = _problem(inexact, _tables(graph, {}))
    (node,) = (each for each in problem.nodes if each.name == "conv2")
    errors = [choice.cost.error for choice in node.choices if choice.childnet is not None]
    assert errors == pytest.approx([9e-12] * len(errors))
    assert errors
