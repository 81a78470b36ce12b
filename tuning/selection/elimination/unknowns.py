"""The unknowns of a net: what DPRS decides, and the tables between them.

Layer i has an unknown Z_i, its option. Other layers only see classes of options: by S_i, the schema that they write,
and for each link e into the layer by R_e, the schema that they read there. Such a class is an unknown of its own, since
a table over schemas has fewer entries than one over options. Classes that divide the options in the same way are one
unknown: a concatenation reads and writes one schema throughout, an addition reads its second summand in the schema that
it writes. Classes that would be hardly fewer than the options are left out.

A value that is spread (``problem.shared_conversions``) has an unknown for each schema to which its readers can share a
conversion: whether it is converted. If there are two readers, a table over what is written and what both read takes its
place, which is no larger than what eliminating it would make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sartor.tuning.selection.elimination.elimination import Factor
from sartor.tuning.selection.problem.indexed import Floats, Link, Mask
from sartor.tuning.selection.problem.shared_conversions import Relaxed, alone

_Labels = tuple[int, ...]
_WORTH = 2
"""Number of options for each schema that is read, on average, from which these schemas are an unknown of their own."""
_PAIR = 2


class Table(NamedTuple):
    """A table that is not built yet, with an axis for each unknown of ``scope``, in ascending order.

    ``layer`` is the last layer, in topological order, whose costs it contains.
    """

    scope: tuple[int, ...]
    layer: int
    build: Callable[[], Floats]


class Unknowns:
    """The unknowns of a net: those of the layers in their order, within a layer Z first, and then those of values.

    Attributes:
        model: the problem with shared conversions.
        sizes: for each unknown the number of its values.
        layer_of: for each unknown the index of its layer; of one that belongs to a value, of the value's producer.
        option: for each layer the unknown Z.
        written: for each layer the unknown S, which is Z if each option writes another schema.
        classes: for each layer all its unknowns but Z.
        copies: for each layer the unknowns of the values that it produces.
        tables: those whose sum is the cost of a plan, infinite where unknowns contradict each other.
    """

    def __init__(self, relaxed: Relaxed) -> None:
        self._relaxed = relaxed
        self.model = relaxed.origin
        self.sizes: list[int] = []
        self.layer_of: list[int] = []
        self.option: list[int] = []
        self.written: list[int] = []
        self.classes: list[tuple[int, ...]] = []
        self.copies: list[list[int]] = [[] for _ in self.model.layers]
        self.tables: list[Table] = []
        self._labels: list[_Labels] = []
        self._copied: list[tuple[list[Link], int]] = []
        self._read: dict[Link, int] = {}
        for index, links in enumerate(self.model.inbound):
            self._add_layer(index, links)
        for index, link in enumerate(self.model.links):
            if (link.sharing[0] if link.sharing else index) not in relaxed.spread:
                self._add_link(link, partial(relaxed.relaxed, index))
        for value in sorted(relaxed.spread):
            readers = relaxed.links(value)
            if len(readers) == _PAIR:
                self._add_pair(*readers)
            else:
                self._add_copies(value, readers)

    def values(self, picks: Sequence[int]) -> list[int]:
        """The values of all unknowns in the plan that takes option ``picks[i]`` at layer i."""
        own = [labels[picks[layer]] for labels, layer in zip(self._labels, self.layer_of, strict=False)]
        return own + [
            int(any(link.needed[picks[link.consumer]] == schema for link in links)) for links, schema in self._copied
        ]

    def picks(self, values: Sequence[int]) -> list[int]:
        """The options of the layers, given the values of all unknowns."""
        return [values[unknown] for unknown in self.option]

    def factors(self) -> list[Factor]:
        """The tables, built."""
        return [Factor(scope, build(), layer) for scope, layer, build in self.tables]

    def _add_layer(self, index: int, links: Sequence[Link]) -> None:
        layer = self.model.layers[index]
        own = self._add(index, tuple(range(len(layer.options))))
        known = {self._labels[own]: own}
        self.option.append(own)
        self.written.append(self._class(known, index, layer.output_of, 1))
        for link in links:
            self._read[link] = self._class(known, index, link.needed, _WORTH)
        self.classes.append(tuple(range(own + 1, len(self.sizes))))
        self.tables.append(Table((own,), index, lambda: layer.values))
        for unknown in self.classes[index]:
            self.tables.append(Table((own, unknown), index, partial(_members, self._labels[unknown])))

    def _class(self, known: dict[_Labels, int], index: int, schemas: NDArray[np.intp], worth: int) -> int:
        """The unknown for classes of options with equal schemas; that of the options if there are almost as many."""
        labels = _numbered(tuple(schemas.tolist()))
        if labels not in known:
            few = max(labels) == 0 or (max(labels) + 1) * worth <= len(labels)
            known[labels] = self._add(index, labels) if few else self.option[index]
        return known[labels]

    def _add(self, layer: int, labels: _Labels) -> int:
        self._labels.append(labels)
        return self._number(layer, max(labels) + 1)

    def _number(self, layer: int, size: int) -> int:
        self.sizes.append(size)
        self.layer_of.append(layer)
        return len(self.sizes) - 1

    def _add_link(self, link: Link, costs: Callable[[], Floats]) -> None:
        """Add the costs of a link, which are given by outputs and options."""
        scope = (self.written[link.producer], self._read[link])
        self.tables.append(Table(scope, link.consumer, lambda: costs()[self._rows(link)][:, self._columns(link)]))

    def _add_pair(self, one: Link, other: Link) -> None:
        """Add the costs of both readers of a value."""
        axes = (self.written[one.producer], self._read[one], self._read[other])
        last = max(one.consumer, other.consumer)
        self.tables.append(Table(tuple(sorted(set(axes))), last, lambda: _sorted(axes, self._together(one, other))))

    def _together(self, one: Link, other: Link) -> Floats:
        """The costs of two readers of a value, by what is written and what both read."""
        first = one.costs[self._rows(one)][:, self._columns(one), np.newaxis]
        second = other.costs[self._rows(other)][:, np.newaxis, self._columns(other)]
        same = one.needed[self._columns(one), np.newaxis] == other.needed[self._columns(other)]
        both: Floats = first + np.where(same & np.isfinite(second), 0.0, second)
        return both

    def _add_copies(self, value: int, links: Sequence[Link]) -> None:
        """Add the costs of the readers of a value, and whether it is converted to each schema that they can share."""
        targets = tuple(self._relaxed.targets[value])
        paid = self._relaxed.paid(value)
        for link in links:
            self._add_link(link, partial(alone, link, targets))
        for schema, costs in zip(targets, np.where(np.isfinite(paid), paid, 0.0).T, strict=True):
            self._add_copy(links, schema, costs)

    def _add_copy(self, links: Sequence[Link], schema: int, paid: Floats) -> None:
        """Add whether a value is converted to a schema, at a price by what is written; its readers require it."""
        producer = links[0].producer
        copy = self._number(producer, 2)
        self._copied.append((list(links), schema))
        self.copies[producer].append(copy)
        prices = np.stack((np.zeros(len(paid)), paid), axis=1)[self._rows(links[0])]
        self.tables.append(Table((self.written[producer], copy), producer, lambda: prices))
        for link in links:
            reading = link.needed[self._columns(link)] == schema
            if reading.any():
                self.tables.append(Table((self._read[link], copy), link.consumer, partial(_required, reading)))

    def _rows(self, link: Link) -> NDArray[np.intp]:
        """The output that each value of what the producer writes stands for."""
        return self.model.layers[link.producer].output_of[_first(self._labels[self.written[link.producer]])]

    def _columns(self, link: Link) -> NDArray[np.intp]:
        """An option for each value of what the consumer reads."""
        return _first(self._labels[self._read[link]])


@lru_cache(maxsize=4096)
def _numbered(schemas: tuple[int, ...]) -> _Labels:
    """The schemas numbered in the order of their first use."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(schema, len(numbers)) for schema in schemas)


@lru_cache(maxsize=4096)
def _first(labels: _Labels) -> NDArray[np.intp]:
    """The first option of each class."""
    first_options: dict[int, int] = {}
    for option, label in enumerate(labels):
        first_options.setdefault(label, option)
    return np.array(list(first_options.values()), dtype=np.intp)


@lru_cache(maxsize=4096)
def _members(labels: _Labels) -> Floats:
    """A table by option and class: nothing where the option is of the class, infinite elsewhere."""
    table = np.full((len(labels), max(labels) + 1), np.inf)
    table[np.arange(len(labels)), labels] = 0.0
    return table


def _required(reading: Mask) -> Floats:
    """A table by what is read and whether it is there: infinite where it is not."""
    table = np.zeros((len(reading), 2))
    table[reading, 0] = np.inf
    return table


def _sorted(axes: tuple[int, int, int], table: Floats) -> Floats:
    """The table with its axes in ascending order; the last two may be the same, and are then one."""
    written, one, other = axes
    if one == other:
        return np.diagonal(table, axis1=1, axis2=2)
    return table.transpose(np.argsort((written, one, other)))
