"""PBQP, partitioned Boolean quadratic programming, NeoCPU's solver for nets that are too wide for its dynamic program
(section 3.3.2).

Every layer is a node with a vector of costs over its options. Every pair of linked layers is an edge with a matrix of
costs over pairs of options. Nodes with at most two neighbours are eliminated exactly: R0 (no neighbour), RI (the node's
best response is added to its neighbour's vector) and RII (to the matrix between its two neighbours). If only nodes with
more neighbours are left, RN fixes the node with the most neighbours at its local minimum, which may be wrong (Hames and
Scholz, "Nearly Optimal Register Allocation with PBQP", 2006; Scholz and Eckstein, "Register Allocation for Irregular
Architectures", 2002). Going back, every node takes its best response to the neighbours that it had when it was
eliminated.

Three things differ from the papers. On the way back the nodes of RN are chosen again, which never increases the cost. A
plan that needs a missing adapt, which RN may cause, is repaired by backtracking. And the reductions are repeated with
the nodes of RN fixed at their last choices, as long as the plan gets cheaper: each time the other nodes respond
exactly, and on the way back the nodes of RN respond to them. On dense blocks this recovers between nothing and nearly
all of the loss by RN, in a few rounds as short as the first.

Conversions that several readers of a value share are paid for once (``heuristics.converters``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heapreplace
from time import perf_counter

import numpy as np

from sartor.tuning.selection.heuristics.converters import Unshared
from sartor.tuning.selection.heuristics.greedy import everything, greedy_picks, supported
from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Mask, index_problem
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, conclude

NAME = "pbqp"
_LOG = logging.getLogger(__name__)


def select(problem: Problem) -> Selection:
    """The plan of the reductions, which is proven optimal if RN was not needed.

    Otherwise the lower bound is the result of reductions in which RN drops a node's edges instead of fixing the node.

    Raises:
        InfeasibleError: if no plan exists.
    """
    started = perf_counter()
    unshared = Unshared(index_problem(problem, lambda childnet: [select(childnet)]))
    rounds: list[_Found] = []
    while True:
        rounds.append(_find(unshared.model))
        picks = unshared.picks(rounds[-1].picks)
        loose = unshared.loose(picks)
        if not loose:
            break
        unshared = unshared.spread_also(loose)
    seconds = perf_counter() - started
    _LOG.info("%s: RN settled %d of %d layers, %.3f s", NAME, rounds[-1].guessed, len(unshared.model.layers), seconds)
    exact = rounds[-1].exact and unshared.is_tight(picks)
    bound = None if exact else max(solved_round.bound for solved_round in rounds)
    return conclude(problem, unshared.origin.assignment(picks), bound=bound, solver=NAME, seconds=seconds)


@dataclass(frozen=True)
class _Found:
    """A plan of a problem without shared conversions.

    Attributes:
        picks: the plan, as option indices.
        bound: a lower bound.
        exact: whether the plan is proven optimal.
        guessed: number of layers that RN settled.
    """

    picks: list[int]
    bound: float
    exact: bool
    guessed: int


def _find(model: IndexedProblem) -> _Found:
    allowed = supported(model, everything(model))
    graph = _graph(model, allowed)
    _reduce(graph, _settle)
    picks = _propagate_back(graph.steps)
    if not np.isfinite(model.value(picks)):
        picks = greedy_picks(model, allowed, preferred=picks)
    if graph.guessed:
        picks = _improved(model, allowed, picks)
    bound = _bound(model, allowed, picks, exact=not graph.guessed)
    return _Found(picks, model.value(picks) if bound is None else bound, bound is None, graph.guessed)


@dataclass(frozen=True, eq=False)
class _Step:
    """A node with its vector and edges when it was eliminated."""

    node: int
    costs: Floats
    edges: dict[int, Floats]


class _Graph:
    """The remaining problem.

    ``edges[u][v]`` is the matrix over options of u, then of v; ``edges[v][u]`` is its transpose. The minimum of each
    row and column is zero, as costs that depend on one end alone are moved to that end's vector. ``guessed`` counts the
    nodes of RN.
    """

    def __init__(self, costs: Sequence[Floats]) -> None:
        self.costs = list(costs)
        self.edges: list[dict[int, Floats]] = [{} for _ in costs]
        self.steps: list[_Step] = []
        self.guessed = 0
        self._narrow: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._wide: list[tuple[int, int]] = []
        self._left = [True] * len(self.costs)

    def fill_worklists(self) -> None:
        """Sort the nodes by their number of neighbours, which only decreases later."""
        for node in range(len(self.costs)):
            self._degree_fell(node)
        self._wide = [(-len(edges), node) for node, edges in enumerate(self.edges) if len(edges) > 2]
        heapify(self._wide)

    def narrow(self) -> int | None:
        """A node with the fewest neighbours, if these are at most two, or None."""
        for degree, worklist in enumerate(self._narrow):
            while worklist:
                node = worklist.pop()
                if self._left[node] and len(self.edges[node]) == degree:
                    return node
        return None

    def widest(self) -> int | None:
        """The node with the most neighbours; None if no node is left."""
        while self._wide:
            degree, node = self._wide[0]
            if self._left[node] and -degree == len(self.edges[node]):
                return node
            if self._left[node]:
                heapreplace(self._wide, (-len(self.edges[node]), node))
            else:
                heappop(self._wide)
        return None

    def connect(self, left: int, right: int, matrix: Floats) -> None:
        """Add ``matrix``, which is overwritten, to an edge, or to the nodes' vectors if no cost depends on both."""
        present = self.edges[left].pop(right, None)
        if present is not None:
            matrix += present
        self.costs[left] = self.costs[left] + _take_out(matrix)
        self.costs[right] = self.costs[right] + _take_out(matrix.T)
        if matrix.any():
            self.edges[left][right] = matrix
            self.edges[right][left] = matrix.T
        elif present is not None:
            self.edges[right].pop(left)
            self._degree_fell(left)
            self._degree_fell(right)

    def take_out(self, node: int) -> _Step:
        """Remove the node and its edges; its option is chosen on the way back."""
        step = _Step(node, self.costs[node], self.edges[node])
        self.steps.append(step)
        self._left[node] = False
        for other in step.edges:
            del self.edges[other][node]
            self._degree_fell(other)
        self.edges[node] = {}
        return step

    def _degree_fell(self, node: int) -> None:
        degree = len(self.edges[node])
        if degree < len(self._narrow):
            self._narrow[degree].append(node)


def _graph(model: IndexedProblem, allowed: Sequence[Mask]) -> _Graph:
    graph = _Graph([np.where(mask, layer.values, np.inf) for mask, layer in zip(allowed, model.layers, strict=True)])
    for link in model.links:
        graph.connect(link.producer, link.consumer, link.costs[model.layers[link.producer].output_of])
    graph.fill_worklists()
    return graph


def _take_out(matrix: Floats) -> Floats:
    """Subtract the minimum from every row, in place; rows without a finite entry become zero."""
    least: Floats = matrix.min(axis=1)
    blocked = np.isinf(least)
    matrix -= np.where(blocked, 0.0, least)[:, np.newaxis]
    matrix[blocked] = 0.0
    return least


_Rule = Callable[[_Graph, _Step], None]
"""The treatment of a node that RN eliminates."""


def _reduce(graph: _Graph, rule: _Rule) -> None:
    """Eliminate all nodes; ``rule`` treats those with more than two neighbours."""
    while (node := graph.narrow()) is not None or (node := graph.widest()) is not None:
        wide = len(graph.edges[node]) > 2
        step = graph.take_out(node)
        graph.guessed += wide
        (rule if wide else _respond)(graph, step)


def _respond(graph: _Graph, step: _Step) -> None:
    """RI and RII: add the node's best response to its neighbours' costs. For R0 there is nothing to do."""
    match list(step.edges.items()):
        case [(only, matrix)]:
            graph.costs[only] = graph.costs[only] + (step.costs[:, np.newaxis] + matrix).min(axis=0)
        case [(left, to_left), (right, to_right)]:
            joined = step.costs[:, np.newaxis, np.newaxis] + to_left[:, :, np.newaxis] + to_right[:, np.newaxis, :]
            graph.connect(left, right, joined.min(axis=0))


def _settle(graph: _Graph, step: _Step) -> None:
    """RN: fix the node at the option that is best if every neighbour responds as if it had no other neighbours."""
    local = step.costs
    for other, matrix in step.edges.items():
        local = local + (matrix + graph.costs[other]).min(axis=1)
    _take(graph, step, int(np.argmin(local)))


def _hold(picks: Sequence[int], graph: _Graph, step: _Step) -> None:
    """Fix the node at its option in a plan."""
    _take(graph, step, picks[step.node])


def _drop(graph: _Graph, step: _Step) -> None:
    """Drop the node's edges, which makes no plan more expensive."""


def _take(graph: _Graph, step: _Step, pick: int) -> None:
    for other, matrix in step.edges.items():
        graph.costs[other] = graph.costs[other] + matrix[pick]


def _propagate_back(steps: Sequence[_Step]) -> list[int]:
    picks = [0] * len(steps)
    for step in reversed(steps):
        costs = step.costs
        for other, matrix in step.edges.items():
            costs = costs + matrix[:, picks[other]]
        picks[step.node] = int(np.argmin(costs))
    return picks


def _improved(model: IndexedProblem, allowed: Sequence[Mask], picks: list[int]) -> list[int]:
    """The plan of repeated reductions, in each of which RN fixes its nodes at the options of the last plan."""
    while True:
        graph = _graph(model, allowed)
        _reduce(graph, partial(_hold, picks))
        other = _propagate_back(graph.steps)
        if not model.value(other) < model.value(picks):
            return picks
        picks = other


def _bound(model: IndexedProblem, allowed: Sequence[Mask], picks: Sequence[int], *, exact: bool) -> float | None:
    """A lower bound; None if the plan is proven optimal."""
    if exact:
        return model.value(picks) - model.slack if model.slack else None
    relaxed = _graph(model, allowed)
    _reduce(relaxed, _drop)
    # A node without neighbours, or whose edges were dropped, adds its minimum to the bound. The costs of the other
    # nodes were added to their neighbours when they were eliminated.
    alone = (step for step in relaxed.steps if not 1 <= len(step.edges) <= 2)
    return sum(float(step.costs.min()) for step in alone) - model.slack
