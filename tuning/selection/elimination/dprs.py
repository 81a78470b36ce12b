"""DPRS, dynamic programming for routine selection (SoftNeuro, section IV, Algorithm 1).

The algorithm visits the layers in topological order. For layer i it keeps the table S_i(λ; λ_C): the cheapest way to
compute everything up to i such that i writes schema λ and the open branching layers C write λ_C. A branching layer adds
itself to C. A layer on all downstream paths of a branching layer relaxes it (Proposition 3). Where the paper leaves
cases open, or assumes nested branches, this implementation does the following:

- Routines whose inputs need other schemas than their output: F_i is indexed by input schemas and output
  schema, and an adapt is paid on every edge by the schema that the routine reads there. Two edges may join
  the same layers.
- Cost of a shared prefix: the paper merges *sets* of routines, in which the layers before the branch occur
  once. Here the table of a branching layer is set aside, the branches start anew from zero, keyed by λ of
  the branching layer, and it is added once, when the constraint is relaxed.
- "All C_h are equal" (line 9) fails where a branch leaves a nested region. The tables of the producers are
  joined over the union of their constraints, so each keeps only the constraints it mentions, never more
  than Proposition 3 says.
- Several inputs and outputs: an auxiliary output post-dominates everything; with shared prefixes set aside an
  auxiliary input has nothing to constrain and is left out. Layers without a connection are simply added.
- Childnets are solved first, innermost first; a choice costs its own overhead plus its childnet's optimum.
- Conversions that several readers of a value share are paid for once (``problem.shared_conversions``).

As the prefix is set aside, each step eliminates one variable from a sum of tables, which is exact in any order. So if
the order of Proposition 3 needs large tables (many outputs keep every branch open to the end) and another order needs
smaller ones, the other order is used. If no order fits into memory, dominated options are removed first. Only if that
does not suffice, the result is not proven optimal; this is logged, and the selection's ``optimal`` is false.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from sartor.tuning.selection.elimination import conditioning
from sartor.tuning.selection.elimination.elimination import DeadEndError, Elimination, Factor, cheapest, eliminate
from sartor.tuning.selection.elimination.order import Order, elimination_order
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.dominance import undominated
from sartor.tuning.selection.problem.indexed import IndexedProblem, index_problem
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment, Selection, conclude, evaluate, nothing_left
from sartor.tuning.selection.problem.shared_conversions import Relaxed

NAME = "dprs"
# Of plans that convert more than is needed there may be many between those that do not.
_MOST_ASKED = 64
_LOG = logging.getLogger(__name__)


def select(problem: Problem) -> Selection:
    """The cheapest plan; among equals the one with earlier choices.

    The time grows with |Λ|^|C|, where |C| is the problem's ``width``.

    Raises:
        InfeasibleError: if no plan exists.
    """
    return k_best(problem, 1)[0]


def k_best(problem: Problem, k: int) -> list[Selection]:
    """The ``k`` cheapest plans, cheapest first; fewer if there are fewer.

    Plans differ if a layer, also one inside a chosen childnet, has another choice. If no order fits into memory, the
    plans after the first are the best with the same fixed values; there may be cheaper ones.

    Raises:
        InfeasibleError: if no plan exists.
        ValueError: if ``k`` is less than 1.
    """
    return search(problem, k).plans


@dataclass(frozen=True)
class Ranking:
    """The plans that a search found.

    Attributes:
        plans: the plans, cheapest first.
        complete: whether certainly no other plan is cheaper than one of these: an order did fit into memory for the
            problem and for all childnets.
    """

    plans: list[Selection]
    complete: bool


def search(problem: Problem, k: int) -> Ranking:
    """As ``k_best``, and whether the plans are certainly the cheapest ones."""
    return Search(problem, k).run()


class Search:
    """The search for the ``k`` cheapest plans, of which nothing but childnets is solved yet.

    Attributes:
        entries: number of entries of the tables to begin with; None if no order fits into memory.

    Raises:
        InfeasibleError: if all choices of a layer have childnets without a plan.
        ValueError: if ``k`` is less than 1.
    """

    def __init__(self, problem: Problem, k: int) -> None:
        if k < 1:
            raise ValueError("at least one plan must be asked for")
        self._problem = problem
        self._k = k
        self._nested: list[bool] = []
        started = perf_counter()
        self._relaxed, self._order = _start(index_problem(problem, self._solve, keep=k), k)
        self._seconds = perf_counter() - started

    @property
    def entries(self) -> int | None:
        order = self._order
        if order.fixed and self._k == 1:
            order = elimination_order(undominated(self._relaxed)[1])
        return None if order.fixed else order.entries

    def run(self) -> Ranking:
        """Find the plans.

        Raises:
            InfeasibleError: if no plan exists.
        """
        started = perf_counter() - self._seconds
        rounds = list(_rounds(self._relaxed, self._order, self._k))
        seconds = perf_counter() - started
        last = rounds[-1]
        _report(last.order, seconds)
        # The lower bounds of all rounds hold; where the last had to fix schemas, an earlier one may be higher.
        bound = None if last.bound is None else max(solved_round.least for solved_round in rounds)
        assignments = last.plans if bound is None else [plan for solved_round in rounds for plan in solved_round.plans]
        plans = last.plans if bound is None else _cheapest(self._problem, assignments, self._k)
        first = conclude(self._problem, plans[0], bound=bound, solver=NAME, seconds=seconds)
        others = [
            conclude(self._problem, plan, bound=first.lower_bound, solver=NAME, seconds=seconds) for plan in plans[1:]
        ]
        return Ranking([first, *others], last.complete and all(self._nested))

    def _solve(self, childnet: Problem) -> list[Selection]:
        plans = search(childnet, self._k)
        self._nested.append(plans.complete)
        return plans.plans


def _rounds(relaxed: Relaxed, order: Order, k: int) -> Iterator[_Round]:
    """Solutions of the problem without shared conversions, until its best plans are tight or no order fits."""
    origin = relaxed.origin
    while True:
        solved = _solve(relaxed, order, k)
        bound = _bound(relaxed, solved)
        least = relaxed.value(solved.picks[0]) if bound is None else bound
        plans = [origin.assignment(pick) for pick in solved.picks]
        tight = all(map(relaxed.is_tight, solved.picks))
        # Of plans that differ only in what they convert, the search may stop before it finds k that differ otherwise.
        complete = tight and not order.fixed and (len(plans) == k or not relaxed.spread)
        yield _Round(solved.order, plans, bound if tight else least, least, complete)
        loose = frozenset[int]().union(*map(relaxed.loose, solved.picks))
        if not loose or solved.order.fixed:
            return
        relaxed = relaxed.spread_also(loose)
        order = elimination_order(relaxed)


def _start(origin: IndexedProblem, k: int) -> tuple[Relaxed, Order]:
    """The problem to solve first: one plan needs a single round if all values are spread and an order still fits.

    Several plans would be hidden among those that convert more than is needed.
    """
    relaxed = Relaxed(origin)
    if k == 1:
        spread = relaxed.spread_also(relaxed.shared)
        order = elimination_order(spread)
        if not order.fixed:
            return spread, order
    return relaxed, elimination_order(relaxed)


@dataclass(frozen=True)
class _Round:
    """The best plans of a problem without shared conversions.

    Attributes:
        order: the order of elimination.
        plans: the plans of the original problem.
        bound: a lower bound of the original problem; None if the first plan is proven optimal.
        least: the same, never None.
        complete: whether no other plan is cheaper than one of these.
    """

    order: Order
    plans: list[Assignment]
    bound: float | None
    least: float
    complete: bool


def _cheapest(problem: Problem, plans: Sequence[Assignment], k: int) -> list[Assignment]:
    """The ``k`` cheapest distinct plans."""
    distinct: list[Assignment] = []
    for plan in plans:
        if plan not in distinct:
            distinct.append(plan)
    costs = {id(plan): evaluate(problem, plan) for plan in distinct}
    return sorted(distinct, key=lambda plan: (costs[id(plan)] or Cost()).value(problem.objective))[:k]


def width(problem: Problem) -> int:
    """The largest number of branching layers whose schemas constrain one table, |C|; 0 for a chain of layers."""
    return elimination_order(Relaxed(index_problem(problem, partial(k_best, k=1)))).width


@dataclass(frozen=True)
class _Found:
    """The option indices of the best plans, a lower bound (None if the first plan is proven optimal), and the order by
    which they were found.
    """

    picks: list[list[int]]
    bound: float | None
    order: Order


def _solve(relaxed: Relaxed, order: Order, k: int) -> _Found:
    """The best plans; if no order fits, those after the first have the same fixed values."""
    if not order.fixed:
        return _Found(_search(order, [0] * len(order.unknowns.sizes), k), None, order)
    solved = _solve_undominated(relaxed)
    if solved.bound is not None:
        best = min(solved.picks[0], conditioning.incumbent(relaxed.origin), key=relaxed.origin.value)
        solved = replace(solved, picks=[best])
    if k == 1:
        return solved
    return replace(solved, picks=_search(order, order.unknowns.values(solved.picks[0]), k))


def _solve_undominated(relaxed: Relaxed) -> _Found:
    """The best plan of the options that are not dominated, whose tables are smaller."""
    kept, rest = undominated(relaxed)
    order = elimination_order(rest)
    values, bound = [0] * len(order.unknowns.sizes), None
    if order.fixed:
        values = order.unknowns.values(conditioning.incumbent(rest.origin))
        bound = _eliminate(conditioning.relax(_factors(order), order.fixed), order).minimum
    (picks,) = _search(order, values, 1)
    return _Found([[int(np.flatnonzero(mask)[pick]) for mask, pick in zip(kept, picks, strict=True)]], bound, order)


def _search(order: Order, values: list[int], k: int) -> list[list[int]]:
    """The option indices of the best plans in which the variables fixed by the order have the given values.

    Of plans that differ only in what is converted the best is taken.
    """
    factors = conditioning.fix(_factors(order), {variable: values[variable] for variable in order.fixed})
    elimination, asked = _eliminate(factors, order), k
    while True:
        picked_values = cheapest(elimination, values, asked)
        distinct = dict.fromkeys(tuple(order.unknowns.picks(picks)) for picks in picked_values)
        if len(distinct) >= k or len(picked_values) < asked or asked >= _MOST_ASKED * k:
            return [list(picks) for picks in distinct][:k]
        asked *= 2


def _bound(relaxed: Relaxed, solved: _Found) -> float | None:
    """A lower bound of all plans, those of childnets included; None if the first plan is proven optimal."""
    slack = relaxed.origin.slack
    if not slack:
        return solved.bound
    return (relaxed.value(solved.picks[0]) if solved.bound is None else solved.bound) - slack


def _eliminate(factors: list[Factor], order: Order) -> Elimination:
    try:
        return eliminate(factors, order.variables)
    except DeadEndError as end:
        raise nothing_left(order.unknowns.model.layers[end.layer].name) from None


def _factors(order: Order) -> list[Factor]:
    """The tables of all layers and links, over variables that are not settled."""
    return conditioning.fix(order.unknowns.factors(), dict.fromkeys(order.settled, 0))


def _report(order: Order, seconds: float) -> None:
    layers = len(order.unknowns.model.layers)
    summary = f"{layers} layers, |C| <= {order.width}, {order.entries} table entries, {seconds:.3f} s"
    if order.fixed:
        _LOG.warning("%s: no exact order fits; %d variables fixed; %s", NAME, len(order.fixed), summary)
    else:
        _LOG.info("%s: %s", NAME, summary)
