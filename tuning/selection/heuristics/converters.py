"""Layers that convert values to sets of schemas, for a solver that knows costs of layers and of pairs of them alone.

A value that is spread (``problem.shared_conversions``) has such a layer right behind its producer. A set has one of 2^m
values, m being the number of schemas that two readers or more can share, so values of many are never spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Layer, Link, Mask, Option
from sartor.tuning.selection.problem.problem import Choice
from sartor.tuning.selection.problem.shared_conversions import Relaxed

MOST_SETS = 1024
"""Largest number of sets of schemas among which the readers of a value may choose; values with more stay relaxed."""

_FREE = Cost()


class Unshared(Relaxed):
    """A problem without shared conversions that stands for another."""

    def __init__(self, origin: IndexedProblem, known: Self | None = None, spread: frozenset[int] = frozenset()) -> None:
        super().__init__(origin, known, spread)
        self._converters: dict[int, _Converter] = {} if known is None else known._converters
        self._places = _places(origin, spread)

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

    def picks(self, plan: Sequence[int]) -> list[int]:
        """The plan of the origin that a plan of this problem stands for, both as option indices."""
        return [plan[place] for place in self._places]

    @cached_property
    def shared(self) -> frozenset[int]:
        """The values that can be spread."""
        return frozenset(value for value in self.targets if self._converter(value).count <= MOST_SETS)

    def _converter(self, value: int) -> _Converter:
        if value not in self._converters:
            producer = self.origin.layers[self.origin.links[value].producer]
            self._converters[value] = _Converter(producer, self.paid(value), tuple(self.targets[value]))
        return self._converters[value]

    def _link(self, index: int, link: Link, place: Mapping[int, int]) -> Link:
        """A link of the origin here, from the converter if its value has one."""
        value = link.sharing[0] if link.sharing else index
        consumer = self._places[link.consumer]
        if value in place:
            return Link(place[value], consumer, self._converter(value).charged(link), link.needed)
        return Link(self._places[link.producer], consumer, self.relaxed(index), link.needed)


class _Converter:
    """A layer that converts a value to sets of schemas, each for what it costs.

    Attributes:
        count: number of the sets, over all outputs of the producer.
    """

    def __init__(self, producer: Layer, costs: Floats, targets: Sequence[int]) -> None:
        """``costs`` are those of converting each output of the producer to each of the targets, which links share."""
        self._producer = producer
        self._schemas = targets
        self._costs = costs
        self.count = int((2 ** np.isfinite(self._costs).sum(axis=1)).sum())
        self._charged: dict[int, Floats] = {}

    @cached_property
    def _sets(self) -> tuple[NDArray[np.intp], Mask]:
        """The output of the producer that each set is of, and which of the schemas are in it."""
        outputs: list[int] = []
        rows: list[Mask] = []
        for output, costs in enumerate(self._costs):
            options = np.flatnonzero(np.isfinite(costs)).tolist()
            for taken in (
                combination for size in range(len(options) + 1) for combination in combinations(options, size)
            ):
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
        return costs, np.arange(len(outputs))

    def charged(self, link: Link) -> Floats:
        """Costs of a reader behind the converter: nothing for what is there, and alone for what nothing else reads."""
        array = self._charged.get(id(link))
        if array is None:
            outputs, members = self._sets
            place = {schema: column for column, schema in enumerate(self._schemas)}
            columns = np.array([place.get(schema, -1) for schema in link.needed.tolist()])
            there = members[:, columns] & (columns >= 0)
            alone = link.costs[outputs]
            behind = np.where(there & np.isfinite(alone), 0.0, np.inf)
            array = self._charged[id(link)] = np.where((columns >= 0) & (alone > 0), behind, alone)
        return array

    def _option(self, number: int, output: int, value: float) -> Option:
        written = self._producer.outputs[output]
        together = Schema(written.device, written.dtype, f"{written.layout} set {number}")
        return Option(Choice(str(number), (written,), together, _FREE), None, value)


def _places(model: IndexedProblem, spread: frozenset[int]) -> list[int]:
    """For each layer its index if each value that is spread has a converter behind its producer."""
    converters = Counter(model.links[value].producer for value in spread)
    places, shift = [], 0
    for index in range(len(model.layers)):
        places.append(index + shift)
        shift += converters[index]
    return places
