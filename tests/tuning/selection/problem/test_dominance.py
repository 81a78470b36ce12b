"""Dominated options: the optimum stays, and what goes is what should."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.dominance import restrict, undominated
from sartor.tuning.selection.problem.indexed import IndexedProblem, index_problem
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.shared_conversions import Relaxed

BuildRandom = Callable[[Random], Problem]

A, B = (Schema.parse(text) for text in ("cpu:f32@nchw", "cpu:f32@nhwc"))
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
