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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from sartor.tuning.selection.elimination import conditioning
from sartor.tuning.selection.elimination.elimination import DeadEndError, Elimination, Factor, cheapest, eliminate
from sartor.tuning.selection.elimination.order import Order, elimination_order, option_of, schema_of
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.dominance import restrict, undominated
from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Layer, index_problem
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment, Selection, conclude, evaluate, nothing_left
from sartor.tuning.selection.problem.shared_conversions import Unshared

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
    if k < 1:
        raise ValueError("at least one plan must be asked for")
    started = perf_counter()
    nested: list[bool] = []

    def solve(childnet: Problem) -> list[Selection]:
        found = search(childnet, k)
        nested.append(found.complete)
        return found.plans

    rounds = list(_rounds(index_problem(problem, solve, keep=k), k))
    seconds = perf_counter() - started
    last = rounds[-1]
    _report(last.model, last.order, seconds)
    # The lower bounds of all rounds hold; where the last had to fix schemas, an earlier one may be higher.
    bound = None if last.bound is None else max(each.least for each in rounds)
    plans = last.plans if bound is None else _cheapest(problem, [plan for each in rounds for plan in each.plans], k)
    first = conclude(problem, plans[0], bound=bound, solver=NAME, seconds=seconds)
    others = [conclude(problem, plan, bound=first.lower_bound, solver=NAME, seconds=seconds) for plan in plans[1:]]
    return Ranking([first, *others], last.complete and all(nested))


def _rounds(origin: IndexedProblem, k: int) -> Iterator[_Round]:
    """Solutions of the problem without shared conversions, until its best plans are tight or no order fits."""
    unshared, order = _start(origin, k)
    while True:
        found = _solve(unshared, order, k)
        bound = _bound(unshared.model, found)
        least = unshared.model.value(found.picks[0]) if bound is None else bound
        picks = [unshared.picks(pick) for pick in found.picks]
        plans = [origin.assignment(pick) for pick in picks]
        tight = all(map(unshared.is_tight, picks))
        # Of plans that differ only in what they convert, the search may stop before it finds k that differ otherwise.
        complete = tight and not order.fixed and (len(plans) == k or not unshared.spread)
        yield _Round(unshared.model, found.order, plans, bound if tight else least, least, complete)
        loose = frozenset[int]().union(*map(unshared.loose, picks))
        if not loose or found.order.fixed:
            return
        unshared = unshared.spread_also(loose)
        order = elimination_order(unshared.model)


def _start(origin: IndexedProblem, k: int) -> tuple[Unshared, Order]:
    """The problem to solve first: one plan needs a single round if all values are spread and an order still fits.

    Several plans would be hidden among those that convert more than is needed.
    """
    relaxed = Unshared(origin)
    if k == 1:
        spread = relaxed.spread_also(relaxed.shared)
        order = elimination_order(spread.model)
        if not order.fixed:
            return spread, order
    return relaxed, elimination_order(relaxed.model)


@dataclass(frozen=True)
class _Round:
    """The best plans of a problem without shared conversions.

    Attributes:
        model: the problem.
        order: the order of elimination.
        plans: the plans of the original problem.
        bound: a lower bound of the original problem; None if the first plan is proven optimal.
        least: the same, never None.
        complete: whether no other plan is cheaper than one of these.
    """

    model: IndexedProblem
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
    return elimination_order(index_problem(problem, partial(k_best, k=1))).width


@dataclass(frozen=True)
class _Found:
    """The option indices of the best plans, a lower bound (None if the first plan is proven optimal), and the order by
    which they were found.
    """

    picks: list[list[int]]
    bound: float | None
    order: Order


def _solve(unshared: Unshared, order: Order, k: int) -> _Found:
    """The best plans; if no order fits, those after the first have the same fixed values."""
    model = unshared.model
    if not order.fixed:
        return _Found(_search(model, order, [0] * (2 * len(model.layers)), k, unshared.picks), None, order)
    found = _solve_undominated(model)
    best = min(found.picks[0], conditioning.incumbent(model), key=model.value)
    others = _search(model, order, conditioning.values_of(model, best), k, unshared.picks) if k > 1 else [best]
    return replace(found, picks=others)


def _solve_undominated(model: IndexedProblem) -> _Found:
    """The best plan of the options that are not dominated, whose tables are smaller."""
    kept = undominated(model)
    rest = restrict(model, kept)
    order = elimination_order(rest)
    values, bound = [0] * (2 * len(rest.layers)), None
    if order.fixed:
        values = conditioning.values_of(rest, conditioning.incumbent(rest))
        bound = _eliminate(rest, conditioning.relax(_factors(rest, order), order.fixed), order).minimum
    (picks,) = _search(rest, order, values, 1)
    return _Found([[int(np.flatnonzero(mask)[pick]) for mask, pick in zip(kept, picks, strict=True)]], bound, order)


def _search(
    model: IndexedProblem, order: Order, values: list[int], k: int, origin: Callable[[list[int]], list[int]] = list
) -> list[list[int]]:
    """The option indices of the best plans in which the variables fixed by the order have the given values.

    Of plans for which ``origin`` returns the same, as they differ only in what is converted, the best is taken.
    """
    factors = conditioning.fix(_factors(model, order), {variable: values[variable] for variable in order.fixed})
    elimination, asked = _eliminate(model, factors, order), k
    while True:
        found = cheapest(elimination, values, asked)
        picks = [[values[option_of(index)] for index in range(len(model.layers))] for values in found]
        first: dict[tuple[int, ...], list[int]] = {}
        for pick in picks:
            first.setdefault(tuple(origin(pick)), pick)
        if len(first) >= k or len(found) < asked or asked >= _MOST_ASKED * k:
            return list(first.values())[:k]
        asked *= 2


def _bound(model: IndexedProblem, found: _Found) -> float | None:
    """A lower bound of all plans, those of childnets included; None if the first plan is proven optimal."""
    if not model.slack:
        return found.bound
    return (model.value(found.picks[0]) if found.bound is None else found.bound) - model.slack


def _eliminate(model: IndexedProblem, factors: list[Factor], order: Order) -> Elimination:
    try:
        return eliminate(factors, order.variables)
    except DeadEndError as end:
        raise nothing_left(model.layers[end.layer].name) from None


def _factors(model: IndexedProblem, order: Order) -> list[Factor]:
    """The routine tables F of all layers and the adapt tables of all links, over variables that are not settled."""
    routines = [
        Factor((option_of(index), schema_of(index)), _routines(layer), index)
        for index, layer in enumerate(model.layers)
    ]
    adapts = [
        Factor((schema_of(link.producer), option_of(link.consumer)), link.costs, link.consumer) for link in model.links
    ]
    return conditioning.fix(routines + adapts, dict.fromkeys(order.settled, 0))


def _routines(layer: Layer) -> Floats:
    """F, indexed by option and output schema: an option's value at the schema that it writes, infinite elsewhere."""
    table = np.full((len(layer.options), len(layer.outputs)), np.inf)
    table[np.arange(len(layer.options)), layer.output_of] = layer.values
    return table


def _report(model: IndexedProblem, order: Order, seconds: float) -> None:
    summary = f"{len(model.layers)} layers, |C| <= {order.width}, {order.entries} table entries, {seconds:.3f} s"
    if order.fixed:
        _LOG.warning("%s: no exact order fits; %d variables fixed; %s", NAME, len(order.fixed), summary)
    else:
        _LOG.info("%s: %s", NAME, summary)
