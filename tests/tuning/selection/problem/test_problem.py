"""Malformed problems are refused with the name of what is wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment, evaluate

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
