"""The order in which DPRS eliminates the variables of a net, which determines the size of its tables.

The variables are the unknowns of the net (``elimination/unknowns.py``). Those with a single value are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations

from sartor.tuning.selection.elimination.unknowns import Unknowns
from sartor.tuning.selection.problem.indexed import IndexedProblem
from sartor.tuning.selection.problem.shared_conversions import Relaxed

REORDER_ABOVE = 2**12
"""Number of table entries per variable below which no other order is searched for: the search would take as long."""
JOIN_LIMIT = 2**24
"""The largest number of entries of one table (128 MiB)."""
TOTAL_LIMIT = 2**26
"""The largest number of entries of all tables together, if they have more than ``_AMPLE`` per variable."""
_AMPLE = 2**13
_COUNTED_DEGREE = 64


@dataclass(frozen=True)
class Order:
    """An order of elimination.

    Attributes:
        unknowns: all variables.
        variables: the variables to eliminate, in order.
        settled: variables with a single value, which need no elimination.
        fixed: variables that must be fixed before, or a table would exceed the limit.
        entries: number of entries of all tables together.
        width: the largest constraint set |C| of a table S_i(λ; λ_C).
    """

    unknowns: Unknowns
    variables: tuple[int, ...]
    settled: tuple[int, ...]
    fixed: tuple[int, ...]
    entries: int
    width: int


def elimination_order(relaxed: Relaxed) -> Order:
    """The order of Algorithm 1, or the best of several greedy orders if its tables are large.

    The greedy orders take the variable with the smallest table, or with the fewest pairs of neighbours that share no
    table yet (min-fill; Bodlaender and Koster, "Treewidth computations I. Upper bounds", 2010). They are tried until
    the best is as fast to use as another is to find.
    """
    interactions = _Interactions(Unknowns(relaxed))
    count = len(interactions.neighbours)
    total = max(TOTAL_LIMIT, _AMPLE * count)
    best = _follow_algorithm(relaxed.origin, interactions, total)
    scores = [_table, _fill]
    if best is None:
        best = _fitting(interactions, scores.pop(0), total)
    for score in scores:
        if best.fixed:
            other = _fitting(interactions, score, total)
        elif best.entries > REORDER_ABOVE * count:
            other = _greedy(interactions.copy(), score, JOIN_LIMIT)
        else:
            break
        best = min(best, other, key=lambda order: (len(order.fixed), order.entries))
    return best


def algorithm_1(model: IndexedProblem, unknowns: Unknowns) -> Iterator[int]:
    """The variables in the order in which SoftNeuro's Algorithm 1 eliminates them.

    At layer i (line 7) it first eliminates the schemas of the producers that only i reads (line 12, fastest over λ_H),
    then those of the branching layers relaxed at i (lines 15 to 23), inner ones first, then the routine of i. The
    schema of i stays open: as λ, and as a constraint if i branches (lines 24 to 31).
    """
    relaxed = relaxations(model)
    for layer, producers in enumerate(model.producers):
        closed = [producer for producer in producers if len(model.consumers[producer]) == 1]
        for unknown in (*closed, *reversed(relaxed[layer])):
            yield from (*unknowns.copies[unknown], unknowns.written[unknown])
        yield from _routine(unknowns, layer)
        if not model.consumers[layer]:
            yield unknowns.written[layer]
    for unknown in reversed(relaxed[-1]):
        yield from (*unknowns.copies[unknown], unknowns.written[unknown])


def _routine(unknowns: Unknowns, layer: int) -> list[int]:
    """What is decided with the routine of a layer, that which needs less to be known of the rest first."""
    own, written = unknowns.option[layer], unknowns.written[layer]
    read = [unknown for unknown in unknowns.classes[layer] if unknown != written]
    together = math.prod(unknowns.sizes[unknown] for unknown in read)
    order = [own, *read] if together <= unknowns.sizes[own] else [*read, own]
    return [unknown for unknown in order if unknown != written]


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
        unknowns: all variables.
        sizes: number of values of every variable that has more than one.
        settled: the other variables.
        neighbours: for each remaining variable those with which it shares a table.
        joined: for each remaining variable the number of entries of the table that its elimination needs.
        entries: sum of these over the eliminated variables.
        width: the largest number of layers whose remaining variables are in one of their tables, minus one.
    """

    def __init__(self, unknowns: Unknowns) -> None:
        sizes = dict(enumerate(unknowns.sizes))
        self.unknowns = unknowns
        self.sizes = {variable: size for variable, size in sizes.items() if size > 1}
        self.settled = tuple(variable for variable, size in sizes.items() if size == 1)
        self.neighbours: dict[int, set[int]] = {variable: set() for variable in self.sizes}
        self.joined = dict(self.sizes)
        self.entries = 0
        self.width = 0
        for table in unknowns.tables:
            for pair in combinations(table.scope, 2):
                self._connect(*pair)

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
        self.width = max(self.width, len({self.unknowns.layer_of[other] for other in left}) - 1)
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
        return Order(self.unknowns, tuple(variables), self.settled, tuple(fixed), self.entries, self.width)

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


def _follow_algorithm(model: IndexedProblem, start: _Interactions, total: int) -> Order | None:
    """Algorithm 1's order, unless its tables would exceed the limits."""
    interactions = start.copy()
    variables = [variable for variable in algorithm_1(model, start.unknowns) if variable in start.sizes]
    for variable in variables:
        if interactions.joined[variable] > JOIN_LIMIT:
            return None
        interactions.eliminate(variable)
    return interactions.order(variables, []) if interactions.entries <= total else None


def _fitting(start: _Interactions, score: _Score, total: int) -> Order:
    """A greedy order whose tables have at most ``total`` entries together."""
    limit = JOIN_LIMIT
    order = _greedy(start.copy(), score, limit)
    while order.entries > total and limit > 1:
        limit //= 4
        order = _greedy(start.copy(), score, limit)
    return order


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
