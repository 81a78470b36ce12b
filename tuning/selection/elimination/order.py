"""The order in which DPRS eliminates the variables of a net, which determines the size of its tables.

Layer i has two variables: Z_i, its option, and S_i, the schema that it writes. Its routine table connects Z_i and S_i,
and every link connects S of the producer with Z of the consumer. Variables with a single value are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain

from sartor.tuning.selection.problem.indexed import IndexedProblem

REORDER_ABOVE = 2**13
"""Number of table entries per variable below which no other order is searched for: the search would take as long."""
JOIN_LIMIT = 2**24
"""The largest number of entries of one table (128 MiB)."""
TOTAL_LIMIT = 2**26
"""The largest number of entries of all tables together, if they have more than ``REORDER_ABOVE`` per variable."""
_COUNTED_DEGREE = 64


@dataclass(frozen=True)
class Order:
    """An order of elimination.

    Attributes:
        variables: the variables to eliminate, in order.
        settled: variables with a single value, which need no elimination.
        fixed: variables that must be fixed before, or a table would exceed the limit.
        entries: number of entries of all tables together.
        width: the largest constraint set |C| of a table S_i(λ; λ_C).
    """

    variables: tuple[int, ...]
    settled: tuple[int, ...]
    fixed: tuple[int, ...]
    entries: int
    width: int


def option_of(layer: int) -> int:
    """The variable Z of a layer."""
    return 2 * layer


def schema_of(layer: int) -> int:
    """The variable S of a layer."""
    return 2 * layer + 1


def elimination_order(model: IndexedProblem) -> Order:
    """The order of Algorithm 1, or the best of several greedy orders if its tables are large.

    The greedy orders take the variable with the smallest table, or with the fewest pairs of neighbours that share no
    table yet (min-fill; Bodlaender and Koster, "Treewidth computations I. Upper bounds", 2010). They are tried until
    the best is as fast to use as another is to find.
    """
    interactions = _Interactions(model)
    enough = REORDER_ABOVE * len(interactions.neighbours)
    orders = chain(
        _follow_algorithm(model, interactions, max(TOTAL_LIMIT, enough)),
        (_fitting(interactions, score, max(TOTAL_LIMIT, enough)) for score in (_table, _fill)),
    )
    best = next(orders)
    for other in orders:
        if not best.fixed and best.entries <= enough:
            break
        best = min(best, other, key=lambda order: (len(order.fixed), order.entries))
    return best


def algorithm_1(model: IndexedProblem) -> Iterator[int]:
    """The variables in the order in which SoftNeuro's Algorithm 1 eliminates them.

    At layer i (line 7) it first eliminates the schemas of the producers that only i reads (line 12, fastest over λ_H),
    then those of the branching layers relaxed at i (lines 15 to 23), inner ones first, then the routine of i. The
    schema of i stays open: as λ, and as a constraint if i branches (lines 24 to 31).
    """
    relaxed = relaxations(model)
    for layer, producers in enumerate(model.producers):
        yield from (schema_of(producer) for producer in producers if len(model.consumers[producer]) == 1)
        yield from (schema_of(branching) for branching in reversed(relaxed[layer]))
        yield option_of(layer)
        if not model.consumers[layer]:
            yield schema_of(layer)
    yield from (schema_of(branching) for branching in reversed(relaxed[-1]))


def relaxations(model: IndexedProblem) -> list[list[int]]:
    """For each layer, and last for the auxiliary output, the branching layers whose constraints are relaxed there.

    By Proposition 3 that is the first layer on all downstream paths of the branching layer, its immediate
    post-dominator.
    """
    relaxed: list[list[int]] = [[] for _ in range(len(model.layers) + 1)]
    for layer, dominator in enumerate(_postdominators(model)):
        if len(model.consumers[layer]) > 1:
            relaxed[dominator].append(layer)
    return relaxed


def _postdominators(model: IndexedProblem) -> list[int]:
    """Each layer's immediate post-dominator. The auxiliary output has index n and reads all layers without readers.

    One backward pass suffices for a DAG (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm",
    2001).
    """
    end = len(model.layers)
    parent = [end] * (end + 1)
    for layer in reversed(range(end)):
        first, *others = model.consumers[layer] or (end,)
        for other in others:
            first = _meet(parent, first, other)
        parent[layer] = first
    return parent[:-1]


def _meet(parent: list[int], left: int, right: int) -> int:
    while left != right:
        if left < right:
            left = parent[left]
        else:
            right = parent[right]
    return left


class _Interactions:
    """Tracks which variables share a table during an elimination, without building the tables.

    Attributes:
        sizes: number of values of every variable that has more than one.
        settled: the other variables.
        neighbours: for each remaining variable those with which it shares a table.
        joined: for each remaining variable the number of entries of the table that its elimination needs.
        entries: sum of these over the eliminated variables.
        width: the largest number of remaining variables in one of their tables, minus one.
    """

    def __init__(self, model: IndexedProblem) -> None:
        sizes: dict[int, int] = {}
        for index, layer in enumerate(model.layers):
            sizes[option_of(index)] = len(layer.options)
            sizes[schema_of(index)] = len(layer.outputs)
        self.sizes = {variable: size for variable, size in sizes.items() if size > 1}
        self.settled = tuple(variable for variable, size in sizes.items() if size == 1)
        self.neighbours: dict[int, set[int]] = {variable: set() for variable in self.sizes}
        self.joined = dict(self.sizes)
        self.entries = 0
        self.width = 0
        for index in range(len(model.layers)):
            self._connect(option_of(index), schema_of(index))
        for link in model.links:
            self._connect(schema_of(link.producer), option_of(link.consumer))

    def copy(self) -> _Interactions:
        """A copy, for another order of elimination."""
        twin = copy(self)
        twin.neighbours = {variable: set(others) for variable, others in self.neighbours.items()}
        twin.joined = dict(self.joined)
        return twin

    def eliminate(self, variable: int) -> list[int]:
        """Record the elimination of ``variable``; returns the remaining variables of its table."""
        self.entries += self.joined[variable]
        left = self.remove(variable)
        self.width = max(self.width, len(left) - 1)
        together = set(left)
        for other in left:
            fresh = together - self.neighbours[other]
            fresh.discard(other)
            self.neighbours[other] |= fresh
            self.joined[other] *= math.prod(map(self.sizes.__getitem__, fresh))
        return left

    def remove(self, variable: int) -> list[int]:
        """Remove ``variable``; returns its former neighbours, sorted."""
        del self.joined[variable]
        left = sorted(self.neighbours.pop(variable))
        for other in left:
            self.neighbours[other].discard(variable)
            self.joined[other] //= self.sizes[variable]
        return left

    def order(self, variables: list[int], fixed: list[int]) -> Order:
        """The order of the recorded eliminations."""
        return Order(tuple(variables), self.settled, tuple(fixed), self.entries, self.width)

    def _connect(self, left: int, right: int) -> None:
        if left in self.sizes and right in self.sizes and right not in self.neighbours[left]:
            self.neighbours[left].add(right)
            self.neighbours[right].add(left)
            self.joined[left] *= self.sizes[right]
            self.joined[right] *= self.sizes[left]


_Score = Callable[[_Interactions, int], int]


def _table(interactions: _Interactions, variable: int) -> int:
    return interactions.joined[variable]


def _fill(interactions: _Interactions, variable: int) -> int:
    """Number of pairs of neighbours that share no table yet; of very many neighbours, number of all pairs."""
    neighbours = interactions.neighbours[variable]
    pairs = len(neighbours) * (len(neighbours) - 1)
    if len(neighbours) <= _COUNTED_DEGREE:
        pairs -= sum(len(neighbours & interactions.neighbours[other]) for other in neighbours)
    return pairs // 2


def _follow_algorithm(model: IndexedProblem, start: _Interactions, total: int) -> Iterator[Order]:
    """Algorithm 1's order, unless its tables would exceed the limits."""
    interactions = start.copy()
    variables = [variable for variable in algorithm_1(model) if variable in start.sizes]
    for variable in variables:
        if interactions.joined[variable] > JOIN_LIMIT:
            return
        interactions.eliminate(variable)
    if interactions.entries <= total:
        yield interactions.order(variables, [])


def _fitting(start: _Interactions, score: _Score, total: int) -> Order:
    """A greedy order whose tables have at most ``total`` entries together."""
    limit = JOIN_LIMIT
    found = _greedy(start.copy(), score, limit)
    while found.entries > total and limit > 1:
        limit //= 4
        found = _greedy(start.copy(), score, limit)
    return found


def _greedy(interactions: _Interactions, score: _Score, limit: int) -> Order:
    """The order that always takes the variable of least score whose table is within ``limit``, or fixes one."""

    def rank(variable: int) -> tuple[bool, int, int, int]:
        joined = interactions.joined[variable]
        return joined > limit, score(interactions, variable), joined, variable

    ranks = {variable: rank(variable) for variable in interactions.neighbours}
    queue = list(ranks.values())
    heapify(queue)
    variables: list[int] = []
    fixed: list[int] = []
    while queue:
        ranked = heappop(queue)
        too_large, *_, variable = ranked
        if variable not in interactions.neighbours or ranked != ranks[variable]:
            continue
        if rank(variable) != ranked:
            # A score also changes when two neighbours begin to share a table; that is not updated at once.
            touched = [variable]
        elif too_large:
            fixed.append(_most_entangled(interactions, variable))
            touched = interactions.remove(fixed[-1])
        else:
            variables.append(variable)
            touched = interactions.eliminate(variable)
        for other in touched:
            if (now := rank(other)) != ranks[other]:
                ranks[other] = now
                heappush(queue, now)
    return interactions.order(variables, fixed)


def _most_entangled(interactions: _Interactions, variable: int) -> int:
    """Of ``variable`` and its neighbours, the one that shares tables with the most others."""
    group = (variable, *interactions.neighbours[variable])
    return min(group, key=lambda other: (-len(interactions.neighbours[other]), other))
