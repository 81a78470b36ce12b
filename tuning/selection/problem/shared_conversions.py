"""Conversions that several layers share, for solvers that charge every link on its own.

Stitching converts a value to a schema once, for all layers that read it so. A solver that charges each of these links
finds such plans too expensive. Two other problems are easier, and share nothing:

- *Relaxed*: each of the n links that could need a conversion pays an n-th of it. No plan costs more than it does in
  truth, and a plan in which all n links need the conversion, or none, costs the same (it is *tight*).
- *Spread*: a layer of its own behind the producer chooses a set of schemas to convert to, and pays for each once; the
  readers take theirs without cost. Every plan costs what it does in truth, if it chooses no set larger than needed.

So if spreading all values is too much, the relaxed problem is solved, the values of which a best plan is not tight are
spread, and so on until it is tight (a cutting-plane method: Dantzig, Fulkerson and Johnson, "Solution of a large-scale
traveling-salesman problem", 1954). Then it is a best plan of the problem: it costs there what it does here, and no
other costs more here than there. A set has one of 2^m values, m being the number of schemas that two readers or more
can share, so values of many are never spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Layer, Link, Mask, Option
from sartor.tuning.selection.problem.problem import Choice

MOST_SETS = 1024
"""Largest number of sets of schemas among which the readers of a value may choose; values with more stay relaxed."""

_FREE = Cost()


class Unshared:
    """A problem without shared conversions that stands for another.

    A value is named by the index of the first link that carries it.

    Attributes:
        origin: the problem with shared conversions.
        spread: values whose conversions have a layer of their own; all others are relaxed.
    """

    def __init__(
        self, origin: IndexedProblem, known: Unshared | None = None, spread: frozenset[int] = frozenset()
    ) -> None:
        """Relax all values but some; ``known`` is another problem that stands for the origin."""
        self.origin = origin
        self.spread = spread
        self._targets: Mapping[int, Mapping[int, int]] = _shared_targets(origin) if known is None else known._targets
        self._converters: dict[int, _Converter] = {} if known is None else known._converters
        self._places = _places(origin, spread)

    def spread_also(self, values: frozenset[int]) -> Unshared:
        """The problem in which these values are spread too."""
        return Unshared(self.origin, self, self.spread | values)

    @cached_property
    def model(self) -> IndexedProblem:
        """The relaxed problem, with a converter right behind the producer of each value that is spread."""
        layers: list[Layer] = []
        links: list[Link] = []
        place: dict[int, int] = {}
        behind: dict[int, list[int]] = {}
        for value in sorted(self.spread):
            behind.setdefault(self.origin.links[value].producer, []).append(value)
        for index, layer in enumerate(self.origin.layers):
            layers.append(layer)
            for value in behind.get(index, ()):
                place[value] = len(layers)
                links.append(Link(self._places[index], len(layers), *self._converter(value).into))
                layers.append(self._converter(value).layer)
        links += (self._link(index, link, place) for index, link in enumerate(self.origin.links))
        return replace(self.origin, layers=tuple(layers), links=tuple(links))

    def picks(self, found: Sequence[int]) -> list[int]:
        """The plan of the origin that a plan of this problem stands for, both as option indices."""
        return [found[place] for place in self._places]

    @cached_property
    def shared(self) -> frozenset[int]:
        """The values that can be spread."""
        return frozenset(value for value in self._targets if self._converter(value).count <= MOST_SETS)

    def loose(self, picks: Sequence[int]) -> frozenset[int]:
        """The values, of those that can be spread, of which a plan of the origin is not tight."""
        return frozenset(value for value in self._loose(picks) if self._converter(value).count <= MOST_SETS)

    def is_tight(self, picks: Sequence[int]) -> bool:
        """Whether a plan of the origin costs as much there as here."""
        return next(self._loose(picks), None) is None

    def _loose(self, picks: Sequence[int]) -> Iterator[int]:
        for value, targets in self._targets.items():
            if value in self.spread:
                continue
            links = [self.origin.links[index] for index in self.origin.values[value]]
            written = self.origin.layers[links[0].producer].output_of[picks[links[0].producer]]
            needed = Counter(
                int(link.needed[picks[link.consumer]])
                for link in links
                if link.costs[written, picks[link.consumer]] > 0
            )
            if any(0 < needed[schema] < count for schema, count in targets.items()):
                yield value

    def _converter(self, value: int) -> _Converter:
        if value not in self._converters:
            links = [self.origin.links[index] for index in self.origin.values[value]]
            self._converters[value] = _Converter(self.origin.layers[links[0].producer], links, self._targets[value])
        return self._converters[value]

    def _link(self, index: int, link: Link, place: Mapping[int, int]) -> Link:
        """A link of the origin here, from the converter if its value has one."""
        value = link.sharing[0] if link.sharing else index
        consumer = self._places[link.consumer]
        if value in place:
            return Link(place[value], consumer, self._converter(value).charged(link), link.needed)
        costs = link.costs
        if value in self._targets:
            targets = self._targets[value]
            costs = costs / np.array([targets.get(schema, 1) for schema in link.needed.tolist()])
        return Link(self._places[link.producer], consumer, costs, link.needed)


class _Converter:
    """A layer that converts a value to sets of schemas, each for what it costs.

    Attributes:
        count: number of the sets, over all outputs of the producer.
    """

    def __init__(self, producer: Layer, links: Sequence[Link], targets: Mapping[int, int]) -> None:
        """Find the conversions that ``links``, which carry the value, can share: those to ``targets``."""
        self._producer = producer
        self._schemas = sorted(targets)
        self._costs = np.array([_paid(links, output, self._schemas) for output in range(len(producer.outputs))])
        self.count = int((2 ** np.isfinite(self._costs).sum(axis=1)).sum())
        self._charged: dict[int, Floats] = {}

    @cached_property
    def _sets(self) -> tuple[NDArray[np.intp], Mask]:
        """The output of the producer that each set is of, and which of the schemas are in it."""
        outputs: list[int] = []
        rows: list[Mask] = []
        for output, costs in enumerate(self._costs):
            options = np.flatnonzero(np.isfinite(costs)).tolist()
            for taken in (each for size in range(len(options) + 1) for each in combinations(options, size)):
                outputs.append(output)
                rows.append(np.zeros(len(costs), dtype=np.bool_))
                rows[-1][list(taken)] = True
        return np.array(outputs, dtype=np.intp), np.array(rows, dtype=np.bool_)

    @cached_property
    def layer(self) -> Layer:
        outputs, members = self._sets
        values = np.where(members, self._costs[outputs], 0.0).sum(axis=1)
        options = tuple(map(self._option, range(len(outputs)), outputs.tolist(), values.tolist()))
        written = tuple(option.choice.output for option in options)
        name = f"conversions of '{self._producer.name}'"
        return Layer(name, options, written, np.arange(len(options)), values, 0.0)

    @cached_property
    def into(self) -> tuple[Floats, NDArray[np.intp]]:
        """Costs and needed schemas of the link from the producer."""
        outputs, _ = self._sets
        costs = np.full((len(self._costs), len(outputs)), np.inf)
        costs[outputs, np.arange(len(outputs))] = 0.0
        return costs, np.zeros(len(outputs), dtype=np.intp)

    def charged(self, link: Link) -> Floats:
        """Costs of a reader behind the converter: nothing for what is there, and alone for what nothing else reads."""
        found = self._charged.get(id(link))
        if found is None:
            outputs, members = self._sets
            place = {schema: column for column, schema in enumerate(self._schemas)}
            columns = np.array([place.get(schema, -1) for schema in link.needed.tolist()])
            there = members[:, columns] & (columns >= 0)
            alone = link.costs[outputs]
            behind = np.where(there & np.isfinite(alone), 0.0, np.inf)
            found = self._charged[id(link)] = np.where((columns >= 0) & (alone > 0), behind, alone)
        return found

    def _option(self, number: int, output: int, value: float) -> Option:
        written = self._producer.outputs[output]
        together = Schema(written.device, written.dtype, f"{written.layout} set {number}")
        return Option(Choice(str(number), (written,), together, _FREE), None, value)


def _shared_targets(model: IndexedProblem) -> Mapping[int, Mapping[int, int]]:
    """For each value the schemas to which two links or more may pay for a conversion, with their number."""
    found: dict[int, dict[int, int]] = {}
    for value, indices in model.values.items():
        counts: Counter[int] = Counter()
        for link in (model.links[index] for index in indices):
            paid = (np.isfinite(link.costs) & (link.costs > 0)).any(axis=0)
            counts.update(set(link.needed[paid].tolist()))
        shared = {schema: count for schema, count in sorted(counts.items()) if count > 1}
        if shared:
            found[value] = shared
    return found


def _places(model: IndexedProblem, spread: frozenset[int]) -> list[int]:
    """For each layer its index if each value that is spread has a converter behind its producer."""
    converters = Counter(model.links[value].producer for value in spread)
    places, shift = [], 0
    for index in range(len(model.layers)):
        places.append(index + shift)
        shift += converters[index]
    return places


def _paid(links: Sequence[Link], output: int, schemas: Sequence[int]) -> list[float]:
    """The cost of converting an output to each schema, which is the same on all links; infinite if nothing is paid."""
    found = dict.fromkeys(schemas, np.inf)
    for link in links:
        for schema, cost in zip(link.needed.tolist(), link.costs[output].tolist(), strict=True):
            if schema in found and 0 < cost < np.inf:
                found[schema] = cost
    return list(found.values())
