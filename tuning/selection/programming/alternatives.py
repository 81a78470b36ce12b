"""Finds the cheapest plans that differ from each other in what costs.

The next best plans after the best one swap layers of some microseconds, which no run of a whole network can tell from
it. So each plan here must differ from all cheaper ones by an amount: the root of the sum of squares of the costs of the
choices that it leaves out, where equal choices of equal costs, which are the same code, count as one. If each cost has
an independent error of the same ratio, the difference of the costs of two plans has an error in proportion to that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter

from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment, Selection, conclude
from sartor.tuning.selection.programming import ilp
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Found
from sartor.tuning.selection.programming.formulation import Net, Row


def alternatives(
    problem: Problem,
    count: int,
    apart: float,
    limits: Limits = UNLIMITED,
    *,
    excess: float = math.inf,
    seconds: float | None = None,
) -> list[Selection]:
    """The cheapest plans that differ by at least ``apart``, cheapest first; fewer if there are fewer or time is up.

    Args:
        problem: the selection problem.
        count: number of plans.
        apart: smallest amount by which a plan differs from all cheaper ones, above 0, in the unit of the costs.
        limits: limits on the plans' memory and error.
        excess: no plan costs more than the cheapest by more than this.
        seconds: time limit; None for none.
    """
    started = perf_counter()
    deadline = math.inf if seconds is None else started + seconds
    search = BoundedSearch(problem, {Quantity(problem.objective.value), *limits.bounds}, keep=count)
    target, selections = search.program.objective(problem.objective), list[Selection]()
    while len(selections) < count:
        best = search.minimise(target, limits.bounds, deadline)
        if not isinstance(best, Found) or not best.proven:
            break
        bound = selections[0].cost if selections else None
        plan = conclude(problem, best.plan, bound=bound, solver=ilp.NAME, seconds=perf_counter() - started)
        if selections and plan.cost > selections[0].cost + excess:
            break
        selections.append(plan)
        search.add_row(_apart_from(search.program.net, best.plan, apart))
    return selections


def _apart_from(net: Net, plan: Assignment, apart: float) -> Row:
    """The row that excludes plans which differ from ``plan`` by less than ``apart``."""
    weights = dict(squares(net, plan))
    unit = apart**2
    total = math.fsum(weights.values()) / unit
    return Row([(column, weight / unit) for column, weight in weights.items()], -math.inf, total - 1)


def squares(net: Net, plan: Assignment) -> Iterator[tuple[int, float]]:
    """The chosen columns, each with what it adds to the square of the difference from plans that leave it out.

    All columns of the same code together add the square of the sum of their costs.
    """
    chosen = [(column, choice.name, choice.cost.value(net.problem.objective)) for column, choice in net.chosen(plan)]
    totals: defaultdict[tuple[str, float], float] = defaultdict(float)
    for _, name, cost in chosen:
        totals[name, cost] += cost
    for column, name, cost in chosen:
        if cost > 0:
            yield column, cost * totals[name, cost]
