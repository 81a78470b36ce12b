"""Builders of selection problems."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random

import pytest

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem, Value

SCHEMAS = tuple(Schema("cpu", "f32", layout) for layout in ("nchw", "nhwc", "nchw16c"))

BuildRandom = Callable[[Random], Problem]
BuildNet = Callable[..., Problem]


def _edges(producers: Sequence[Sequence[int]], result: int | None = None) -> tuple[Edge, ...]:
    return tuple(
        Edge(f"n{producer}", f"n{consumer}", slot, result)
        for consumer, reads in enumerate(producers)
        for slot, producer in enumerate(reads)
    )


def _random_choices(rng: Random, arity: int, depth: int) -> tuple[Choice, ...]:
    return tuple(
        Choice(
            f"c{number}",
            tuple(rng.choice(SCHEMAS) for _ in range(arity)),
            rng.choice(SCHEMAS),
            Cost(latency=rng.randint(0, 9), memory=rng.randint(0, 9)),
            _random_problem(rng, 3, depth - 1) if depth and rng.random() < 0.2 else None,
        )
        for number in range(rng.randint(1, 3))
    )


def _random_problem(rng: Random, most: int, depth: int) -> Problem:
    """A DAG with several sources and sinks, multi-edges and absent adapts; costs are small integers.

    In half of them all edges from a layer carry one value.
    """
    count = rng.randint(1, most)
    producers = [[rng.randrange(node) for _ in range(rng.randint(0, 3))] if node else [] for node in range(count)]
    edges = _edges(producers, rng.choice((None, 0)))
    costs: dict[tuple[Value | Edge, Schema, Schema], Cost] = {}
    adapts: dict[tuple[Edge, Schema, Schema], Cost] = {}
    for edge, produced, needed in itertools.product(edges, SCHEMAS, SCHEMAS):
        if produced != needed and rng.random() < 0.75:
            fresh = Cost(latency=rng.randint(0, 6), memory=rng.randint(0, 6))
            adapts[edge, produced, needed] = costs.setdefault((edge.value or edge, produced, needed), fresh)
    nodes = tuple(Node(f"n{node}", _random_choices(rng, len(reads), depth)) for node, reads in enumerate(producers))
    return Problem(nodes, edges, adapts)


@pytest.fixture(scope="session")
def random_problem() -> BuildRandom:
    """Small random problems, with childnets up to two levels deep, some of them without a plan."""
    return lambda rng: _random_problem(rng, 6, 2)


@pytest.fixture(scope="session")
def layout_net() -> BuildNet:
    """A net from its layers' producers: every layer reads and writes one of ``schemas`` layouts throughout.

    Costs are reproducible pseudo-random floats; an adapt costs about as much as a layer.
    """

    def build(producers: Sequence[Sequence[int]], schemas: int = 3, choices: int = 4, seed: int = 0) -> Problem:
        rng = Random(seed)
        layouts = [Schema("cpu", "f32", f"l{number}") for number in range(schemas)]

        def offers(reads: Sequence[int]) -> tuple[Choice, ...]:
            return tuple(
                Choice(
                    f"c{number}",
                    (layouts[number % schemas],) * len(reads),
                    layouts[number % schemas],
                    Cost(latency=rng.uniform(1, 5)),
                )
                for number in range(choices)
            )

        nodes = tuple(Node(f"n{index}", offers(reads)) for index, reads in enumerate(producers))
        edges = _edges(producers)
        adapts = {
            (edge, produced, needed): Cost(latency=rng.uniform(0.5, 2))
            for edge in edges
            for produced in layouts
            for needed in layouts
            if produced != needed
        }
        return Problem(nodes, edges, adapts, Objective.LATENCY)

    return build
