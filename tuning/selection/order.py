"""In which order DPRS settles the variables of a net, which decides how large its tables become.

Layer i has two variables: Z_i, the option it takes, and S_i, the schema it writes. Its routine table ties
Z_i to S_i, every link ties S of the producer to Z of the consumer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from sartor.tuning.selection.indexed import IndexedProblem

REORDER_ABOVE = 2**18
"""Table entries up to which the order of Algorithm 1 is kept without looking for another."""
JOIN_LIMIT = 2**24
"""The most entries that one joined table may have (128 MiB)."""
TOTAL_LIMIT = 2**26
"""The most entries that all joined tables may have together."""


@dataclass(frozen=True)
class Order:
    """An order of elimination.

    Attributes:
        variables: what to eliminate, in order.
        fixed: variables that must be given a value beforehand, or some table would exceed the limit.
        entries: the entries of all joined tables together.
        width: the largest constraint set |C| of a table S_i(λ; λ_C).
    """

    variables: tuple[int, ...]
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
    """The order of Algorithm 1, or a greedy one where that keeps too many constraints open at once."""
    paper = _follow_algorithm(model)
    if paper is not None and paper.entries <= REORDER_ABOVE:
        return paper
    limit = JOIN_LIMIT
    other = _smallest_table_first(model, limit)
    while other.entries > TOTAL_LIMIT and limit > 1:
        limit //= 4
        other = _smallest_table_first(model, limit)
    return paper if paper is not None and (other.fixed or paper.entries <= other.entries) else other


def algorithm_1(model: IndexedProblem) -> Iterator[int]:
    """The variables in the order in which SoftNeuro's Algorithm 1 is done with them.

    At layer i (line 7) the schemas of the producers that only i reads are settled first (line 12, fastest
    over λ_H), then those of the branching layers relaxed at i (lines 15 to 23), the inner ones first, then
    the routine of i. The schema of i itself stays open: as λ, and as a constraint where i branches (lines
    24 to 31).
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
    """For each layer, and last for the auxiliary output, the branching layers whose constraint is relaxed
    there.

    By Proposition 3 that is possible from the first layer on that lies on all downstream paths of the
    branching layer, which is its immediate post-dominator.
    """
    relaxed: list[list[int]] = [[] for _ in range(len(model.layers) + 1)]
    for layer, dominator in enumerate(_postdominators(model)):
        if len(model.consumers[layer]) > 1:
            relaxed[dominator].append(layer)
    return relaxed


def _postdominators(model: IndexedProblem) -> list[int]:
    """Each layer's immediate post-dominator; the auxiliary output has index n and reads all layers nobody
    reads.

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
    """Which variables share a table, while they are eliminated; the tables themselves are never built."""

    def __init__(self, model: IndexedProblem) -> None:
        self.sizes: dict[int, int] = {}
        self.entries = 0
        self.width = 0
        for index, layer in enumerate(model.layers):
            self.sizes[option_of(index)] = len(layer.options)
            self.sizes[schema_of(index)] = len(layer.outputs)
        self.neighbours: dict[int, set[int]] = {variable: set() for variable in self.sizes}
        for index in range(len(model.layers)):
            self._connect(option_of(index), schema_of(index))
        for link in model.links:
            self._connect(schema_of(link.producer), option_of(link.consumer))

    def join_size(self, variable: int) -> int:
        """Entries of the table that eliminating ``variable`` needs."""
        return self.sizes[variable] * math.prod(self.sizes[other] for other in self.neighbours[variable])

    def eliminate(self, variable: int) -> list[int]:
        """Account for the elimination; returns the variables that are left in the table."""
        self.entries += self.join_size(variable)
        left = self.remove(variable)
        self.width = max(self.width, len(left) - 1)
        for other in left:
            self.neighbours[other].update(left)
            self.neighbours[other].discard(other)
        return left

    def remove(self, variable: int) -> list[int]:
        """Take ``variable`` out; returns its former neighbours, ascending."""
        left = sorted(self.neighbours.pop(variable))
        for other in left:
            self.neighbours[other].discard(variable)
        return left

    def _connect(self, left: int, right: int) -> None:
        self.neighbours[left].add(right)
        self.neighbours[right].add(left)


def _follow_algorithm(model: IndexedProblem) -> Order | None:
    """Algorithm 1's order, or None if its tables would exceed the limits."""
    interactions = _Interactions(model)
    variables = tuple(algorithm_1(model))
    for variable in variables:
        if interactions.join_size(variable) > JOIN_LIMIT:
            return None
        interactions.eliminate(variable)
    if interactions.entries > TOTAL_LIMIT:
        return None
    return Order(variables, (), interactions.entries, interactions.width)


def _smallest_table_first(model: IndexedProblem, limit: int) -> Order:
    """Always the variable whose joined table is smallest; where even that exceeds ``limit``, one is fixed."""
    interactions = _Interactions(model)
    queue = [(interactions.join_size(variable), variable) for variable in interactions.neighbours]
    heapify(queue)
    variables: list[int] = []
    fixed: list[int] = []
    while queue:
        size, variable = heappop(queue)
        if variable not in interactions.neighbours or size != interactions.join_size(variable):
            continue
        if size > limit:
            fixed.append(_most_entangled(interactions, variable))
            touched = interactions.remove(fixed[-1])
        else:
            variables.append(variable)
            touched = interactions.eliminate(variable)
        for other in touched:
            heappush(queue, (interactions.join_size(other), other))
    return Order(tuple(variables), tuple(fixed), interactions.entries, interactions.width)


def _most_entangled(interactions: _Interactions, variable: int) -> int:
    """Of ``variable`` and its neighbours the undecided one that shares tables with the most others."""
    group = [other for other in (variable, *interactions.neighbours[variable]) if interactions.sizes[other] > 1]
    return min(group, key=lambda other: (-len(interactions.neighbours[other]), other))
