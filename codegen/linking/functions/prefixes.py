"""Entries that compute the beginnings of a network, up to one piece each: a layer or a conversion.

The time of a piece in the network is the difference between two of them, on devices that count no dispatches. What
later pieces read are results, so that nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.codegen.ir.layer import Layer, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.entries import Entry, Port

PREFIX = "prefix$"
"""Entries are called so, with the number of their pieces."""

_Stored = tuple[ValueRef, Schema]


@dataclass(frozen=True)
class Prefix:
    """A beginning of a network.

    Attributes:
        symbol: of the piece that it ends with.
        entry: computes it.
    """

    symbol: str
    entry: Entry


def prefixes_of(whole: Entry, symbols: Mapping[str, str], code: Mapping[str, Implementation]) -> list[Prefix]:
    """All beginnings of a network on one device, the shortest first.

    Args:
        whole: computes the network.
        symbols: of each layer's piece, by the layer's name.
        code: the chosen implementation of each layer, by name.
    """
    return list(_Growing(whole, symbols, code).prefixes())


def choose(prefixes: Sequence[Prefix], most: int) -> list[Prefix]:
    """The prefixes by which each distinct piece is timed at its first and its last place: the one that ends there, and
    the one before.

    Args:
        prefixes: all, the shortest first.
        most: number of pieces that are timed at most; if there are more, some between are left out.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, prefix in enumerate(prefixes):
        first.setdefault(prefix.symbol, place)
        last[prefix.symbol] = place
    places = sorted({*first.values(), *last.values()})
    if len(places) > most:
        places = [places[index * len(places) // most] for index in range(most)]
    kept = sorted({near for place in places for near in (place - 1, place) if near >= 0})
    return [prefixes[place] for place in kept]


@dataclass
class _Growing:
    """A beginning that grows piece by piece."""

    whole: Entry
    symbols: Mapping[str, str]
    code: Mapping[str, Implementation]
    done: list[Layer] = field(default_factory=list)
    adapted: dict[_Stored, TensorType] = field(default_factory=dict)

    def prefixes(self) -> Iterator[Prefix]:
        ports = {input_.ref: input_ for input_ in self.whole.inputs if input_.ref is not None}
        self.produced = {ref: (port.logical, port.schema) for ref, port in ports.items()}
        waiting = list(self.whole.layers)
        while waiting:
            layer = waiting[0]
            inputs = zip(layer.inputs, self.code[layer.name].inputs, strict=True)
            yield from self._adapts(inputs, waiting)
            waiting = waiting[1:]
            self.done.append(layer)
            results = zip(layer.task.results, self.code[layer.name].outputs, strict=True)
            self.produced |= {ValueRef(layer.name, index): result for index, result in enumerate(results)}
            yield self._prefix(self.symbols[layer.name], waiting)
        yield from self._adapts([(output.ref, output.schema) for output in self.whole.outputs if output.ref], waiting)

    def _adapts(self, read: Iterator[_Stored] | list[_Stored], waiting: Sequence[Layer]) -> Iterator[Prefix]:
        """Prefixes that end with conversions of what is read next."""
        for ref, wanted in read:
            logical, schema = self.produced[ref]
            kind = AdaptKind.between(logical, schema, wanted)
            if kind is not None and not kind.is_free and (ref, wanted) not in self.adapted:
                self.adapted[ref, wanted] = logical
                yield self._prefix(kind.symbol, waiting)

    def _prefix(self, symbol: str, waiting: Sequence[Layer]) -> Prefix:
        """The beginning that was reached; its results are what is read later, as it is stored, and nothing else."""
        read = [
            *(pair for layer in waiting for pair in zip(layer.inputs, self.code[layer.name].inputs, strict=True)),
            *((output.ref, output.schema) for output in self.whole.outputs if output.ref is not None),
        ]
        results: dict[_Stored, TensorType] = {}
        for ref, wanted in read:
            if (ref, wanted) in self.adapted:
                results[ref, wanted] = self.adapted[ref, wanted]
            elif ref.source is not None and ref in self.produced:
                logical, schema = self.produced[ref]
                results[ref, schema] = logical
        outputs = tuple(
            Port(f"result{index}", ref, logical, schema)
            for index, ((ref, schema), logical) in enumerate(results.items())
        )
        name = f"{PREFIX}{len(self.done) + len(self.adapted)}"
        return Prefix(symbol, Entry(name, self.whole.device, tuple(self.done), self.whole.inputs, outputs))
