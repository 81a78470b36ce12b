"""A tensor that goes to another device goes there once, whatever reads it."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.tuning.cost_tables.shared_transfers import with_shared_transfers
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem, Value
from sartor.tuning.selection.programming import ilp

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
