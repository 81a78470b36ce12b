"""From measurements to a selection problem: what tables say, by how much they err, and what is paid once."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from benchmarks.selection.exhaustive import select
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.errors import InfeasibleError
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.shared_transfers import with_shared_transfers
from sartor.tuning.cost_tables.table_errors import TableErrors, sampling_error
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem, Value
from sartor.tuning.selection.programming import ilp
from sartor.tuning.transfers.times import TransferTimes
from tests.importing import ImportedOf
from tests.tuning.cost_tables.test_in_network import Named


def test_adapts_that_move_nothing_are_free() -> None:
    nchw, nhwc = Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
    tables = Tables({}, {})
    assert adapt_seconds(AdaptKind("tensor<1x16x1x1xf32>", nchw, nhwc), tables) == 0
    moved = AdaptKind("tensor<1x16x8x8xf32>", nchw, nhwc)
    assert 0 < adapt_seconds(moved, tables) < 1e-4
    assert adapt_seconds(moved, Tables({}, {}, {moved: 0.5})) == 0.5


def test_a_crossing_takes_the_transfer_as_produced_and_the_conversion_where_it_arrives() -> None:
    there, here = Schema("vulkan", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
    kind = AdaptKind("tensor<1x16x8x8xf32>", there, here)
    moved = TransferTimes(((0, 1.0), (4096, 3.0)))
    converted = AdaptKind(kind.tensor, Schema("cpu", "f32", "nchw"), here)
    assert kind.local == converted
    tables = Tables({}, {}, {converted: 0.5}, transfers={("vulkan", "cpu"): moved})
    assert adapt_seconds(kind, tables) == 3.5
    assert adapt_seconds(AdaptKind(kind.tensor, here, there), tables) == math.inf
    same = AdaptKind(kind.tensor, there, Schema("cpu", "f32", "nchw"))
    assert same.local is None
    assert adapt_seconds(same, tables) == 3.0


TARGET = Target.create("cpu")


def measurement(descriptor: str, seconds: float, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("task", descriptor, "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, status, (seconds,) if status is Status.OK else (), message=f"{descriptor} is {status}")


@pytest.fixture(scope="module")
def tables(imported_of: ImportedOf) -> Tables:
    """Stock is slow, the first other variant of each task fast, all others failed."""
    variants = list_candidates(imported_of("residual").graph, routines_for(()), TARGET).variants
    measured = {
        key: {
            each.descriptor: measurement(
                each.descriptor, 1e-3 / (1 + index), Status.OK if index < 2 else Status.CRASHED
            )
            for index, each in enumerate(listed)
        }
        for key, listed in variants.items()
    }
    return Tables(variants, measured)


def test_only_what_works_is_a_choice(imported_of: ImportedOf, tables: Tables) -> None:
    problem = selection_problem(imported_of("residual").graph, tables, "cpu", Objective.LATENCY)
    assert [len(node.choices) for node in problem.nodes] == [1, 2, 2, 1]
    assert problem.nodes[0].name == "input:x"
    assert problem.nodes[-1].name == "output:y"


def test_pins_restrict_the_layers_they_name(imported_of: ImportedOf, tables: Tables) -> None:
    graph = imported_of("residual").graph
    pinned = selection_problem(graph, tables, "cpu", Objective.LATENCY, (Pin("conv1", "*stock"),))
    assert [len(node.choices) for node in pinned.nodes] == [1, 1, 2, 1]
    with pytest.raises(InfeasibleError, match=r"'conv2' fits its pins, it has cpu:f32/conv2d\.stock"):
        selection_problem(graph, tables, "cpu", Objective.LATENCY, (Pin("*2", "gpu:*"),))


def test_a_layer_without_any_routine_says_why(imported_of: ImportedOf, tables: Tables) -> None:
    failed = {
        key: {name: measurement(name, 0, Status.CRASHED) for name in listed} for key, listed in tables.measured.items()
    }
    with pytest.raises(InfeasibleError, match=r"layer 'conv1' works: cpu:f32/conv2d\.stock is crashed"):
        selection_problem(imported_of("residual").graph, Tables(tables.variants, failed), "cpu", Objective.LATENCY)


def test_the_cheapest_choice_is_the_measured_one(imported_of: ImportedOf, tables: Tables) -> None:
    problem = selection_problem(imported_of("residual").graph, tables, "cpu", Objective.LATENCY)
    selection = select(problem)
    assert not any(selection.choices[name].name.endswith("stock") for name in ("conv1", "conv2"))


def measured(name: str, *samples: float) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "backend")
    return Measurement(key, Status.OK, samples)


def table_errors_tables(**seconds: float) -> Tables:
    """A variant ``v`` of each task."""
    variants = {key: (Named("v"), Named("w")) for key in seconds}
    results = {key: {"v": measured("v", second), "w": measured("w", second)} for key, second in seconds.items()}
    return Tables(variants, results)  # type: ignore[arg-type]


def errors(ratio: float, **in_network: float) -> TableErrors:
    """The errors of layers that take 1 ms alone."""
    times = InNetworkTimes({(key, "v"): each for key, each in in_network.items()})
    return TableErrors.of(table_errors_tables(**dict.fromkeys(in_network, 1e-3)), times, ratio)


def test_a_network_in_which_all_layers_are_slower_by_the_same_ratio_tells_their_order() -> None:
    assert errors(1.0, a=2e-3, b=2e-3).of_a_swap == pytest.approx(0.0, abs=1e-12)
    assert errors(1.0).of_a_swap == 0.0


def test_ratios_that_vary_make_scaled_times_uncertain() -> None:
    found = errors(1.0, a=1e-3, b=1e-3 * math.exp(0.2))
    assert found.network == 0.0
    # Near the half of the distance of the logarithms, as both weigh about the same.
    assert found.of_a_swap == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("ratio", [1.1, 1 / 1.1])
def test_a_network_that_takes_another_time_than_its_layers_makes_all_uncertain(ratio: float) -> None:
    found = errors(ratio, a=1e-3, b=1e-3)
    assert found.network == pytest.approx(math.log(1.1))
    assert found.of_a_swap == pytest.approx(math.sqrt(2) * math.log(1.1))


def test_what_two_plans_do_alike_has_no_error() -> None:
    found = errors(1.1, a=1e-3, b=1e-3)
    plan = {("a", "v"): 1.0, ("b", "v"): 5.0}
    assert found.of_difference(plan, plan) == 0.0
    swapped = {("a", "w"): 2.0, ("b", "v"): 5.0}
    expected = math.hypot(1.0 * math.log(1.1), 2.0 * math.log(1.1))
    assert found.of_difference(plan, swapped) == pytest.approx(expected)


def test_samples_that_vary_add_to_the_error_of_what_was_measured_alone_only() -> None:
    noisy = measured("w", *(1e-3 * (1 + 0.1 * number) for number in range(9)))
    alone = table_errors_tables(a=1e-3)
    alone = Tables(alone.variants, {"a": {**alone.measured["a"], "w": noisy}})
    found = TableErrors.of(alone, InNetworkTimes({("a", "v"): 1e-3}), 1.0)
    assert sampling_error(noisy) == pytest.approx(0.4e-3 / 3 / 1.2e-3)
    assert found.of_difference({("a", "v"): 1.0}, {}) == 0.0
    assert found.of_difference({("a", "w"): 1.0}, {}) == pytest.approx(sampling_error(noisy))
    assert sampling_error(measured("v", 1e-3)) == 0.0


HERE, OTHER = (Schema("cpu", "f32", layout) for layout in ("nchw", "nhwc"))
THERE, ELSEWHERE = (Schema("vulkan", "f32", layout) for layout in ("nchw", "nhwc"))
SCHEMAS = (HERE, OTHER, THERE, ELSEWHERE)
INSIDE = Schema("cpu", "f32", "inside a kernel")
TRANSFER = 10.0


def _moved(value: Value, produced: Schema, device: str) -> float:
    return TRANSFER + len(value.producer) + (produced.layout == "nhwc")


def _random_problem(rng: Random) -> Problem:
    """Layers that read and write on two devices, with a value inside of a fused kernel now and then."""
    count = rng.randint(2, 5)
    reads = [[rng.randrange(node) for _ in range(rng.randint(1, 2))] if node else [] for node in range(count)]
    nodes = tuple(
        Node(f"n{node}", tuple(_random_choice(rng, str(index), len(own)) for index in range(rng.randint(1, 3))))
        for node, own in enumerate(reads)
    )
    edges = tuple(
        Edge(f"n{producer}", f"n{node}", slot, 0) for node, own in enumerate(reads) for slot, producer in enumerate(own)
    )
    local = {pair: float(rng.randint(0, 9)) for pair in itertools.product(SCHEMAS, SCHEMAS)}
    adapts = {}
    for edge, (produced, needed) in itertools.product(edges, itertools.permutations(SCHEMAS, 2)):
        crossing = produced.device != needed.device
        moved = _moved(Value(edge.producer, 0), produced, needed.device) if crossing else 0.0
        adapts[edge, produced, needed] = Cost(latency=moved + local[produced, needed])
    return Problem(nodes, edges, adapts)


def _random_choice(rng: Random, name: str, slots: int) -> Choice:
    inputs = tuple(rng.choice(SCHEMAS) for _ in range(slots))
    return Choice(name, inputs, rng.choice((*SCHEMAS, INSIDE)), Cost(latency=float(rng.randint(0, 20))))


def _as_run(problem: Problem, picked: tuple[Choice, ...]) -> float | None:
    """What a plan takes if each value goes to a device once, and is converted to a schema once; None if it cannot."""
    choices = {node.name: choice for node, choice in zip(problem.nodes, picked, strict=True)}
    total = sum(choice.cost.latency for choice in picked)
    sent: set[tuple[str, str]] = set()
    converted: set[tuple[str, Schema]] = set()
    for edge in problem.edges:
        produced, needed = choices[edge.producer].output, choices[edge.consumer].inputs[edge.slot]
        cost = problem.adapt(edge, produced, needed)
        if cost is None:
            return None
        moved = _moved(Value(edge.producer, 0), produced, needed.device) if produced.device != needed.device else 0.0
        total += 0.0 if (edge.producer, needed) in converted else cost.latency - moved
        total += 0.0 if (edge.producer, needed.device) in sent else moved
        converted.add((edge.producer, needed))
        sent |= {(edge.producer, needed.device)} if moved else set()
    return total


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=st.builds(Random, st.integers(0, 2**32 - 1)))
def test_the_best_plan_is_the_best_as_it_is_run(rng: Random) -> None:
    problem = _random_problem(rng)
    taken = [_as_run(problem, picked) for picked in itertools.product(*(node.choices for node in problem.nodes))]
    possible = [each for each in taken if each is not None]
    if not possible:
        return
    shared = with_shared_transfers(problem, _moved)
    for found in (dprs.select(shared), ilp.select(shared), exhaustive.select(shared)):
        assert found.optimal
        assert found.cost == pytest.approx(min(possible))
        assert _as_run(problem, tuple(found.choices[node.name] for node in problem.nodes)) == pytest.approx(found.cost)


def test_a_tensor_that_is_read_in_two_schemas_goes_once() -> None:
    """Two layers are faster on the other device by less than two transfers, and by more than one."""
    edges = tuple(Edge("image", name, 0, 0) for name in ("left", "right"))
    readers = [
        Node(name, (Choice("slow", (HERE,), HERE, Cost(8.0)), Choice("fast", (schema,), schema, Cost(1.0))))
        for name, schema in (("left", THERE), ("right", ELSEWHERE))
    ]
    adapts = {(edge, HERE, schema): Cost(TRANSFER) for edge, schema in zip(edges, (THERE, ELSEWHERE), strict=True)}
    apart = Problem((Node("image", (Choice("only", (), HERE, Cost()),)), *readers), edges, adapts)
    assert dprs.select(apart).cost == 16.0
    together = with_shared_transfers(apart, lambda value, produced, device: TRANSFER)
    best = dprs.select(together)
    assert best.cost == TRANSFER + 2.0
    assert [best.choices[node.name].name for node in apart.nodes] == ["only", "fast", "fast"]


def test_readers_in_one_schema_need_no_node() -> None:
    edges = tuple(Edge("image", name, 0, 0) for name in ("left", "right"))
    readers = [Node(name, (Choice("only", (THERE,), THERE, Cost()),)) for name in ("left", "right")]
    adapts = {(edge, HERE, THERE): Cost(TRANSFER) for edge in edges}
    problem = Problem((Node("image", (Choice("only", (), HERE, Cost()),)), *readers), edges, adapts)
    assert with_shared_transfers(problem, _moved).edges == problem.edges
    assert dprs.select(with_shared_transfers(problem, _moved)).cost == TRANSFER
