"""Greedy selection: in topological order, the cheapest option of each layer given its producers' choices."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from sartor.tuning.selection.problem.indexed import IndexedProblem, Layer, Link, Mask, index_problem
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, conclude, nothing_left

NAME = "greedy"


def select(problem: Problem) -> Selection:
    """Take each layer's cheapest option with its adapts from the producers' choices; among equals the first.

    At a dead end it backtracks, so it finds a plan if there is one.

    Raises:
        InfeasibleError: if no plan exists.
    """
    started = perf_counter()
    model = index_problem(problem, lambda childnet: [select(childnet)])
    picks = greedy_picks(model, supported(model, everything(model)))
    bound = independent_bound(model) - model.slack
    seconds = perf_counter() - started
    return conclude(problem, model.assignment(picks), bound=bound, solver=NAME, seconds=seconds)


def everything(model: IndexedProblem) -> list[Mask]:
    """For each layer a mask that allows all its options."""
    return [np.ones(len(layer.options), dtype=np.bool_) for layer in model.layers]


def supported(model: IndexedProblem, allowed: Sequence[Mask]) -> list[Mask]:
    """Allow only options that can be combined with some allowed option at the other end of every link.

    This is arc consistency: it excludes no plan, and saves most of the backtracking.

    Raises:
        InfeasibleError: if no option of a layer is left.
    """
    kept = [mask.copy() for mask in allowed]
    partial = sorted((link for link in model.links if np.isinf(link.costs).any()), key=lambda link: link.consumer)
    changed = True
    while changed:
        before = sum(int(mask.sum()) for mask in kept)
        for link in partial:
            _drop_unreachable(model, kept, link)
        for link in reversed(partial):
            _drop_dead_ends(model, kept, link)
        changed = sum(int(mask.sum()) for mask in kept) < before
    return kept


def greedy_picks(model: IndexedProblem, allowed: Sequence[Mask], preferred: Sequence[int] | None = None) -> list[int]:
    """The greedy plan among the allowed options, as an option index for each layer.

    ``preferred`` option indices, one for each layer, are tried before the cheapest options. So a plan that needs
    missing adapts is repaired with few changes.

    From a dead end it jumps back to the latest layer that caused it (conflict-directed backjumping; Prosser, "Hybrid
    algorithms for the constraint satisfaction problem", 1993).

    Raises:
        InfeasibleError: if no plan exists.
    """
    count, deepest, index = len(model.layers), 0, 0
    picks = [0] * count
    untried: list[list[int]] = [[] for _ in range(count)]
    blamed: list[set[int]] = [set() for _ in range(count)]
    arrived = True
    while index < count:
        if arrived:
            deepest = max(deepest, index)
            untried[index] = _by_cost(model, allowed, picks, index)
            if preferred is not None and preferred[index] in untried[index]:
                untried[index].remove(preferred[index])
                untried[index].insert(0, preferred[index])
            blamed[index] = set(model.producers[index])
        arrived = bool(untried[index])
        if arrived:
            picks[index] = untried[index].pop(0)
            index += 1
        else:
            index = _jump_back(model, blamed, index, deepest)
    return picks


def _by_cost(model: IndexedProblem, allowed: Sequence[Mask], picks: Sequence[int], index: int) -> list[int]:
    costs = np.where(allowed[index], model.layers[index].values, np.inf)
    for link in model.inbound[index]:
        costs = costs + model.adapt_costs(link, picks)
    return [int(option) for option in np.argsort(costs, kind="stable") if np.isfinite(costs[option])]


def _jump_back(model: IndexedProblem, blamed: list[set[int]], index: int, deepest: int) -> int:
    if not blamed[index]:
        raise nothing_left(model.layers[deepest].name)
    target = max(blamed[index])
    blamed[target] |= blamed[index] - {target}
    return target


def _drop_unreachable(model: IndexedProblem, kept: list[Mask], link: Link) -> None:
    written = _written(model.layers[link.producer], kept[link.producer])
    kept[link.consumer] &= np.isfinite(link.costs[written]).any(axis=0)
    if not kept[link.consumer].any():
        raise nothing_left(model.layers[link.consumer].name)


def _drop_dead_ends(model: IndexedProblem, kept: list[Mask], link: Link) -> None:
    readable: Mask = np.logical_or.reduce(np.isfinite(link.costs[:, kept[link.consumer]]), axis=1)
    kept[link.producer] &= readable[model.layers[link.producer].output_of]
    if not kept[link.producer].any():
        raise nothing_left(model.layers[link.consumer].name)


def _written(layer: Layer, mask: Mask) -> Mask:
    written = np.zeros(len(layer.outputs), dtype=np.bool_)
    written[layer.output_of[mask]] = True
    return written


def independent_bound(model: IndexedProblem) -> float:
    """A lower bound: the sum of the cheapest option of every layer and the cheapest adapt of every link, of which each
    reader of a value pays an equal part."""
    return sum(float(layer.values.min()) for layer in model.layers) + sum(
        float(link.costs.min()) / link.readers for link in model.links
    )
