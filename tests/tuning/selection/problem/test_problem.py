"""Problems: malformed ones are refused, pins are read, and dominated options go without the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError, UsageError
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.dominance import restrict, undominated
from sartor.tuning.selection.problem.indexed import IndexedProblem, index_problem
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment, evaluate
from sartor.tuning.selection.problem.shared_conversions import Relaxed

A, B = (Schema.parse(text) for text in ("cpu:f32@nchw", "cpu:f32@nhwc"))
SOURCE = Choice("source", (), A, Cost())
SQUARE = Choice("square", (A, A), A, Cost(latency=1.0))
X, Y = Node("x", (SOURCE,)), Node("y", (SQUARE,))
BOTH = (Edge("x", "y", 0), Edge("x", "y", 1))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ((X, X), (), "same name"),
        ((Node("x", ()),), (), "layer 'x' has no choices"),
        ((Node("x", (SOURCE, SOURCE)),), (), "layer 'x' has two choices of the same name"),
        ((Node("x", (SOURCE, SQUARE)),), (), "another number of inputs"),
        (
            (Node("x", (replace(SOURCE, cost=Cost(latency=math.inf)),)),),
            (),
            "'source' of layer 'x' has no finite",
        ),
        ((X, Y), (*BOTH, Edge("z", "y", 0)), "no layer 'z'"),
        ((X, Y), (*BOTH, Edge("x", "z", 0)), "no layer 'z'"),
        ((Y, X), BOTH, "topological"),
        ((X, Y), (*BOTH, Edge("x", "y", 2)), "'x' -> 'y' input 2: the slot is out of range"),
        ((X, Y), (*BOTH, Edge("x", "y", 1)), "fed twice"),
        ((X, Y), BOTH[:1], "input 1 of layer 'y' is fed by no edge"),
    ],
)
def test_malformed_net(nodes: tuple[Node, ...], edges: tuple[Edge, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(nodes, edges, {})


def test_malformed_adapts() -> None:
    with pytest.raises(ValueError, match="there is no edge 'x' -> 'y' input 7"):
        Problem((X, Y), BOTH, {(Edge("x", "y", 7), A, B): Cost()})
    with pytest.raises(ValueError, match="no finite cost"):
        Problem((X, Y), BOTH, {(BOTH[0], A, B): Cost(latency=math.nan)})


def test_childnet_must_share_the_objective() -> None:
    inner = Problem((X,), (), {}, Objective.MEMORY)
    with pytest.raises(ValueError, match="another objective than latency"):
        Problem((Node("x", (replace(SOURCE, childnet=inner),)),), (), {})


def test_evaluate_counts_every_edge_and_every_layer_once() -> None:
    reads_b = replace(SQUARE, inputs=(B, A), cost=Cost(1.0, 2.0, 3.0, 4.0))
    problem = Problem((X, Node("y", (reads_b,))), BOTH, {(BOTH[0], A, B): Cost(0.5, 0.25)})
    plan = Assignment({"x": SOURCE, "y": reads_b})
    assert evaluate(problem, plan) == Cost(1.5, 2.25, 3.0, 4.0)


def test_evaluate_of_a_missing_adapt_is_none() -> None:
    reads_b = replace(SQUARE, inputs=(B, A))
    problem = Problem((X, Node("y", (reads_b,))), BOTH, {(BOTH[0], B, A): Cost()})
    assert evaluate(problem, Assignment({"x": SOURCE, "y": reads_b})) is None


def test_evaluate_refuses_what_the_layer_does_not_offer() -> None:
    problem = Problem((X, Y), BOTH, {})
    with pytest.raises(ValueError, match="'y'"):
        evaluate(problem, Assignment({"x": SOURCE}))
    with pytest.raises(ValueError, match="'x'"):
        evaluate(problem, Assignment({"x": replace(SOURCE, output=B), "y": SQUARE}))


@pytest.mark.parametrize("text", ["conv1", "=x", "conv1=", ""])
def test_a_malformed_pin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no pin"):
        Pin.parse(text)


def test_a_pin_splits_at_the_first_equals_sign() -> None:
    assert Pin.parse("conv*=*tiled{depth=4}") == Pin("conv*", "*tiled{depth=4}")


BuildRandom = Callable[[Random], Problem]


RNG = st.builds(Random, st.integers(0, 2**32 - 1))


def _relaxed(problem: Problem) -> Relaxed:
    return Relaxed(index_problem(problem, lambda childnet: [dprs.select(childnet)]))


@settings(max_examples=200, deadline=None)
@given(rng=RNG)
def test_the_optimum_stays(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000)
    try:
        best = exhaustive.select(problem).cost
        relaxed = _relaxed(problem)
    except InfeasibleError:
        assume(False)
    model = relaxed.origin
    kept, _ = undominated(relaxed.spread_also(relaxed.shared))
    rest = restrict(model, kept)
    assert _optimum(rest) == best
    for layer, fewer, mask in zip(model.layers, rest.layers, kept, strict=True):
        assert fewer.options == tuple(np.array(layer.options, dtype=object)[mask])
        assert [fewer.outputs[output] for output in fewer.output_of] == [
            option.choice.output for option in fewer.options
        ]


@settings(max_examples=100, deadline=None)
@given(rng=RNG)
def test_the_optimum_of_a_relaxed_problem_stays(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 300)
    try:
        relaxed = _relaxed(problem)
    except InfeasibleError:
        assume(False)
    relaxed = relaxed.spread_also(frozenset(value for value in relaxed.shared if rng.random() < 0.5))
    kept, rest = undominated(relaxed)
    back = [np.flatnonzero(mask) for mask in kept]
    options = np.ndindex(*(len(layer.options) for layer in rest.origin.layers))
    left = min(relaxed.value([int(one[pick]) for one, pick in zip(back, picks, strict=True)]) for picks in options)
    assert left == pytest.approx(min(map(relaxed.value, np.ndindex(*map(len, kept)))))


def test_what_adapts_cannot_make_up_for_goes() -> None:
    relaxed = _relaxed(_stem_and_head(dear=5.0))
    assert [mask.tolist() for mask in undominated(relaxed)[0]] == [[True, False], [True, False]]


def test_what_adapts_may_make_up_for_stays() -> None:
    relaxed = _relaxed(_stem_and_head(dear=2.0))
    assert [mask.tolist() for mask in undominated(relaxed)[0]] == [[True, True], [True, True]]


def test_the_first_of_equals_stays() -> None:
    relaxed = _relaxed(Problem((Node("x", tuple(Choice(str(each), (), each, Cost(1.0)) for each in (B, A))),), (), {}))
    assert [mask.tolist() for mask in undominated(relaxed)[0]] == [[True, False]]


def _stem_and_head(dear: float) -> Problem:
    """Once the stem's second choice is too dear, the head has no use for its own."""
    edge = Edge("stem", "head", 0)
    nodes = (
        Node("stem", (Choice("a", (), A, Cost(1.0)), Choice("b", (), B, Cost(dear)))),
        Node("head", (Choice("a", (A,), A, Cost(1.0)), Choice("b", (B,), A, Cost(0.0)))),
    )
    return Problem(nodes, (edge,), {(edge, A, B): Cost(3.0), (edge, B, A): Cost(3.0)})


def _optimum(model: IndexedProblem) -> float:
    return min(model.value(picks) for picks in np.ndindex(*(len(layer.options) for layer in model.layers)))
