"""Finds the plan whose first inference is the shortest where reading and executing overlap.

The time is no sum over layers, so eliminating layers does not find it. But it is the largest of sums, which an integer
program minimises: a column for the end of reading each layer, and one for the end of executing it, are at least what
must be over before, plus what the layer takes.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from sartor.tuning.selection.overlap.queues import queues_of
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing
from sartor.tuning.selection.programming.formulation import Program, Row, Term
from sartor.tuning.selection.programming.infeasible import no_plan

_SCALE = 1024.0


@dataclass(frozen=True, eq=False)
class Overlapped:
    """A plan for the first inference.

    Attributes:
        plan: the plan.
        seconds: of its first inference.
        bound: no plan within the limits takes less.
        proven: whether this one is proven the best.
    """

    plan: Assignment
    seconds: float
    bound: float
    proven: bool


def shortest(problem: Problem, limits: Limits = UNLIMITED, seconds: float | None = None) -> Overlapped:
    """The plan with the shortest first inference, or the best one found in time.

    Args:
        problem: with costs of reading (``cold``) and of executing (``executing``).
        limits: on the plan.
        seconds: time limit; None for none.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
    """
    deadline = math.inf if seconds is None else perf_counter() + seconds
    search = _Search(problem, limits)
    solution = search.minimise(search.target, limits.bounds, deadline)
    if isinstance(solution, Nothing):
        raise no_plan(search, limits, solution.proven)
    taken = queues_of(problem, solution.plan).seconds
    bound = taken if solution.proven else min(solution.bound / search.scale, taken)
    return Overlapped(solution.plan, taken, bound, solution.proven)


def fastest(problem: Problem, limits: Limits = UNLIMITED, seconds: float | None = None) -> Overlapped:
    """The plan that executes in the least time, and of those the one that reads least: it is the shortest where
    reading hides behind executing.

    Arguments and errors are those of ``shortest``; the bound is that of all plans' time of executing.
    """
    search = BoundedSearch(problem, {Quantity.LATENCY, Quantity.COLD, *limits.bounds})
    deadline = math.inf if seconds is None else perf_counter() + seconds
    solution = search.least_then(Quantity.LATENCY, Quantity.COLD, limits.bounds, deadline)
    if isinstance(solution, Nothing):
        raise no_plan(search, limits, solution.proven)
    return Overlapped(solution.plan, queues_of(problem, solution.plan).seconds, solution.bound, solution.proven)


class _Search(BoundedSearch):
    """Searches plans by the end of their last layer."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        quantities = {Quantity.LATENCY, Quantity.COLD, *limits.bounds}
        program = _Program(problem, quantities)
        super().__init__(problem, quantities, program=program)
        self.scale = program.scale
        self.target = np.zeros(len(program.binary))
        self.target[program.last] = 1.0


class _Program(Program):
    """The program of a selection, with columns for the ends of reading and executing each layer.

    Attributes:
        last: the column of the end of executing the last layer, in seconds times ``scale``.
    """

    def __init__(self, problem: Problem, quantities: Collection[Quantity]) -> None:
        super().__init__(problem, quantities)
        sums = sum(cost.executing + cost.cold for cost in self._costs) or 1.0
        self.scale = _SCALE * len(problem.nodes) / sums
        self.last = self._add_ends(len(problem.nodes))

    def _add_ends(self, layers: int) -> int:
        reading, executing = self._terms(layers, "cold"), self._terms(layers, "executing")
        read = done = self._add_column()
        self.rows.append(Row([(read, 1.0)], 0.0, 0.0))
        for place in range(layers):
            own_read, own_done = self._add_column(), self._add_column()
            self._add_end(own_read, read, reading[place])
            for before in (own_read, done):
                self._add_end(own_done, before, executing[place])
            read, done = own_read, own_done
        return done

    def _add_end(self, end: int, before: int, terms: list[Term]) -> None:
        """``end`` is at least ``before`` and the terms."""
        self.rows.append(Row([(end, 1.0), (before, -1.0), *terms], 0.0, np.inf))

    def _terms(self, layers: int, part: str) -> list[list[Term]]:
        """By layer the columns that add to a queue."""
        terms: list[list[Term]] = [[] for _ in range(layers)]
        for column, (place, cost) in enumerate(zip(self.places, self._costs, strict=True)):
            if seconds := getattr(cost, part):
                terms[place].append((column, -seconds * self.scale))
        return terms
