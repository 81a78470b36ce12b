"""The Pareto front of two quantities, by the epsilon-constraint method (Haimes, Lasdon and Wismer, "On a bicriterion
formulation of the problems of integrated system identification and system optimization", 1971).

Every point is the plan with the least of the first quantity among those with at most epsilon of the second, and of
those plans the one with the least of the second. The integer program proves both, so no plan is better in one quantity
and no worse in the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from sartor.tuning.selection.problem.limits import UNLIMITED, Amounts, Limits, Quantity
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment
from sartor.tuning.selection.programming.bounded_search import RESOLUTION, BoundedSearch, Nothing
from sartor.tuning.selection.programming.infeasible import no_plan

POINTS = 12


@dataclass(frozen=True, eq=False)
class Point:
    """A plan on the front.

    Attributes:
        plan: the plan.
        needed: the amount of every quantity that it needs.
        proven: whether no plan needs less of one of the front's quantities and no more of the other.
    """

    plan: Assignment
    needed: Amounts
    proven: bool


@dataclass(frozen=True, eq=False)
class SolvedFront:
    """The Pareto front of two quantities.

    Attributes:
        first: the quantity by which points are sorted, ascending.
        second: the other quantity, which descends.
        points: none of them dominates another.
        complete: whether these are all points of the front.
    """

    first: Quantity
    second: Quantity
    points: tuple[Point, ...]
    complete: bool


def pareto_front(
    problem: Problem,
    first: Quantity,
    second: Quantity,
    limits: Limits = UNLIMITED,
    most: int = POINTS,
    seconds: float | None = None,
) -> SolvedFront:
    """The front, or ``most`` points of it: both ends, and others spread evenly over the second quantity.

    Args:
        problem: the selection problem.
        first: a quantity.
        second: another quantity.
        limits: limits on all plans.
        most: largest number of points, at least 2.
        seconds: time after which no further points are searched for; None for no limit.

    Raises:
        InfeasibleError: if no plan exists, or none within the limits.
        ValueError: if the quantities are the same, or ``most`` is less than 2.
    """
    if first is second or most < 2:
        raise ValueError("a front needs at least two points, and two quantities that differ")
    deadline = math.inf if seconds is None else perf_counter() + seconds
    tracer = _Tracer(BoundedSearch(problem, {first, second, *limits.bounds}), first, second, limits, deadline)
    tracer.find_ends()
    tracer.spread(most)
    complete = tracer.fill(most)
    return SolvedFront(first, second, tuple(tracer.points), complete)


class _Tracer:
    """Finds the points of a front, and keeps them sorted by the first quantity."""

    def __init__(
        self, search: BoundedSearch, first: Quantity, second: Quantity, limits: Limits, deadline: float
    ) -> None:
        self._search = search
        self._first, self._second = first, second
        self._limits = limits
        self._deadline = deadline
        self.points: list[Point] = []
        self._ended_early = False

    def find_ends(self) -> None:
        """Find the plans with the least of either quantity.

        Raises:
            InfeasibleError: if there is none, or none was found in time.
        """
        best = self._best(self._first, self._second, self._limits.bounds)
        if isinstance(best, Nothing):
            raise no_plan(self._search, self._limits, best.proven)
        other = self._best(self._second, self._first, self._limits.bounds)
        self.points.append(best)
        if isinstance(other, Point):
            self._add(other)

    def spread(self, most: int) -> None:
        """Find points at equal distances of the second quantity."""
        for epsilon in np.linspace(self._value(self.points[0]), self._value(self.points[-1]), most)[1:-1]:
            self._add_below(float(epsilon))

    def fill(self, most: int) -> bool:
        """Find the next point after each, widest gaps first, up to ``most``; returns whether there are no others."""
        step = RESOLUTION * max(abs(self._value(point)) for point in self.points)
        open_ends = self.points[:-1]
        while open_ends and len(self.points) < most:
            left = max(open_ends, key=self._gap)
            open_ends.remove(left)
            point = self._add_below(self._value(left) - step)
            if point is not None:
                open_ends.append(point)
        return not (open_ends or self._ended_early) and all(point.proven for point in self.points)

    def _gap(self, left: Point) -> float:
        right = self.points[self.points.index(left) + 1]
        return self._value(left) - self._value(right)

    def _value(self, point: Point) -> float:
        return point.needed[self._second]

    def _add_below(self, epsilon: float) -> Point | None:
        """The best point with at most ``epsilon`` of the second quantity, if it is new."""
        bound = min(epsilon, self._limits.bounds.get(self._second, math.inf))
        point = self._best(self._first, self._second, {**self._limits.bounds, self._second: bound})
        return point if isinstance(point, Point) and self._add(point) else None

    def _add(self, point: Point) -> bool:
        """Add the point unless another is as good; returns whether it was added."""
        if any(self._is_as_good(other, point) for other in self.points):
            return False
        self.points = [other for other in self.points if not self._is_as_good(point, other)] + [point]
        self.points.sort(key=lambda point: point.needed[self._first])
        return True

    def _is_as_good(self, one: Point, other: Point) -> bool:
        """Whether ``one`` needs no more of either quantity, up to the resolution."""
        return all(
            one.needed[quantity] <= other.needed[quantity] + RESOLUTION * abs(other.needed[quantity])
            for quantity in (self._first, self._second)
        )

    def _best(self, one: Quantity, other: Quantity, bounds: Amounts) -> Point | Nothing:
        """The plan with the least of ``one``, and of those the one with the least of ``other``."""
        solution = self._search.least_then(one, other, bounds, self._deadline)
        self._ended_early |= isinstance(solution, Nothing) and not solution.proven
        return solution if isinstance(solution, Nothing) else Point(solution.plan, solution.needed, solution.proven)
