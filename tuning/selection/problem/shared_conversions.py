"""Conversions that several layers share, for solvers that charge every link on its own.

Stitching converts a value to a schema once, for all layers that read it so. A solver that charges each of these links
finds such plans too expensive. Two other problems are easier, and share nothing:

- *Relaxed*: each of the n links that could need a conversion pays an n-th of it. No plan costs more than it does in
  truth, and a plan in which all n links need the conversion, or none, costs the same (it is *tight*).
- *Spread*: it is decided for each schema whether the value is converted to it, which is paid for once; the readers take
  what is there without cost. Every plan costs what it does in truth, if nothing is converted without need.

So if spreading all values is too much, the relaxed problem is solved, the values of which a best plan is not tight are
spread, and so on until it is tight (a cutting-plane method: Dantzig, Fulkerson and Johnson, "Solution of a large-scale
traveling-salesman problem", 1954). Then it is a best plan of the problem: it costs there what it does here, and no
other costs more here than there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Link, Mask


class Relaxed:
    """A problem with some values spread and the conversions of all others relaxed.

    A value is named by the index of the first link that carries it.

    Attributes:
        origin: the problem with shared conversions.
        spread: values whose conversions are decided on; all others are relaxed.
        targets: for each value that links can share conversions of, the schemas to which two links or more may pay
            for one, with the number of these links.
    """

    def __init__(self, origin: IndexedProblem, known: Self | None = None, spread: frozenset[int] = frozenset()) -> None:
        """Relax all values but some; ``known`` is another such problem whose values are the same."""
        self.origin = origin
        self.spread = spread
        self.targets: Mapping[int, Mapping[int, int]] = _shared_targets(origin) if known is None else known.targets

    def spread_also(self, values: frozenset[int]) -> Self:
        """The problem in which these values are spread too."""
        return type(self)(self.origin, self, self.spread | values)

    @property
    def shared(self) -> frozenset[int]:
        """The values that can be spread."""
        return frozenset(self.targets)

    def loose(self, picks: Sequence[int]) -> frozenset[int]:
        """The values, of those that can be spread, of which a plan of the origin is not tight."""
        return frozenset(self._loose(picks)) & self.shared

    def is_tight(self, picks: Sequence[int]) -> bool:
        """Whether a plan of the origin costs as much there as here."""
        return next(self._loose(picks), None) is None

    def value(self, picks: Sequence[int]) -> float:
        """The value of a plan of the origin here; infinite if an adapt is missing."""
        total = self.origin.value(picks)
        for value in self._loose(picks):
            needed, written = self._needed(value, picks)
            paid = dict(zip(self.targets[value], self.paid(value)[written].tolist(), strict=True))
            total -= sum(paid[schema] * (1.0 - needed[schema] / self.targets[value][schema]) for schema in needed)
        return total

    def links(self, value: int) -> list[Link]:
        """The links that carry a value."""
        return [self.origin.links[index] for index in self.origin.values[value]]

    def paid(self, value: int) -> Floats:
        """The cost of converting each output of a value's producer to each of the targets, the same on all links that
        can have it; infinite if nothing is paid."""
        links, targets = self.links(value), self.targets[value]
        rows = range(len(self.origin.layers[links[0].producer].outputs))
        return np.array([_paid(links, output, tuple(targets)) for output in rows])

    def relaxed(self, index: int) -> Floats:
        """The costs of a link of which each reader of the value pays a part."""
        link = self.origin.links[index]
        value = link.sharing[0] if link.sharing else index
        if value not in self.targets:
            return link.costs
        targets = self.targets[value]
        parts: Floats = link.costs / np.array([targets.get(schema, 1) for schema in link.needed.tolist()])
        return parts

    def least_and_most(self, index: int) -> tuple[Floats, Floats]:
        """The least and the most that a link adds to the cost of a plan, whatever other links need."""
        link = self.origin.links[index]
        value = link.sharing[0] if link.sharing else index
        if value in self.spread:
            return alone(link, tuple(self.targets[value])), link.costs
        costs = self.relaxed(index)
        return costs, costs

    def within(self, part: IndexedProblem) -> Self:
        """The same values of the origin with only some of its options."""
        return type(self)(part, self, self.spread)

    def _loose(self, picks: Sequence[int]) -> Iterator[int]:
        for value, targets in self.targets.items():
            if value not in self.spread:
                needed, _ = self._needed(value, picks)
                if any(count < targets[schema] for schema, count in needed.items()):
                    yield value

    def _needed(self, value: int, picks: Sequence[int]) -> tuple[Counter[int], int]:
        """How many links pay for a conversion to each of the targets, and the output that the producer writes."""
        links = self.links(value)
        written = int(self.origin.layers[links[0].producer].output_of[picks[links[0].producer]])
        paying = (link for link in links if 0 < link.costs[written, picks[link.consumer]] < np.inf)
        needed = Counter(int(link.needed[picks[link.consumer]]) for link in paying)
        shared = self.targets[value]
        return Counter({schema: count for schema, count in needed.items() if schema in shared}), written


def alone(link: Link, targets: Sequence[int]) -> Floats:
    """The costs of a link without conversions to ``targets``, which are paid for by their value."""
    shared: Mask = np.isin(link.needed, targets) & np.isfinite(link.costs)
    return np.where(shared, 0.0, link.costs)


def _shared_targets(model: IndexedProblem) -> Mapping[int, Mapping[int, int]]:
    """For each value the schemas to which two links or more may pay for a conversion, with their number."""
    targets_of_values: dict[int, dict[int, int]] = {}
    for value, indices in model.values.items():
        counts: Counter[int] = Counter()
        for link in (model.links[index] for index in indices):
            paid = (np.isfinite(link.costs) & (link.costs > 0)).any(axis=0)
            counts.update(set(link.needed[paid].tolist()))
        shared = {schema: count for schema, count in sorted(counts.items()) if count > 1}
        if shared:
            targets_of_values[value] = shared
    return targets_of_values


def _paid(links: Sequence[Link], output: int, schemas: Sequence[int]) -> list[float]:
    """The cost of converting an output to each schema, which is the same on all links; infinite if nothing is paid."""
    paid = dict.fromkeys(schemas, np.inf)
    for link in links:
        for schema, cost in zip(link.needed.tolist(), link.costs[output].tolist(), strict=True):
            if schema in paid and 0 < cost < np.inf:
                paid[schema] = cost
    return list(paid.values())
