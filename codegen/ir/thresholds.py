"""The sizes at which layers of a plan change from one version of their code to the other: one less, and the first."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.sizes.dims import Count, Extent, Product, Symbol, count_of, symbols_in
from sartor.codegen.ir.variants.routine import Variant

MOST_CHECKED = 12
"""Sizes that a file is checked with because its layers change their code: both sides of six changes. Each takes an
import, and the model by ONNX Runtime. Both versions of all layers run in any case, as the least and the largest sizes
are on different sides of each change."""

# A logarithm that no number of places has.
_FAR = 64.0

# Parts of the octaves of a range that other symbols have where one crosses a threshold, the first that lets it.
_OTHERS = (0.5, 0.0, 1.0)

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Threshold:
    """Where a layer changes its code.

    Attributes:
        layer: its name.
        places: of its result, by sizes.
        below, first: the last sizes of one version, and the next ones, by name.
    """

    layer: str
    places: Count
    below: Sizes
    first: Sizes

    @property
    def text(self) -> str:
        """From which sizes on the layer runs other code."""
        (changed,) = (name for name, size in self.first.items() if self.below[name] != size)
        others = ", ".join(f"{name}={size}" for name, size in self.first.items() if name != changed)
        return f"{changed}={self.first[changed]}" + (f" with {others}" if others else "")


def described(thresholds: Sequence[Threshold]) -> list[str]:
    """What is told of changes of code: a sentence for all layers with the same."""
    layers = defaultdict[str, list[str]](list)
    for threshold in thresholds:
        layers[threshold.text].append(threshold.layer)
    return [f"{_named(names)} other code from {text} on" for text, names in layers.items()]


def _named(layers: Sequence[str]) -> str:
    first, *others = layers
    return f"'{first}' and {len(others)} more layers run" if others else f"'{first}' runs"


def thresholds_of(graph: LayerGraph, variants: Mapping[str, Variant], symbols: Sequence[Symbol]) -> list[Threshold]:
    """Where layers change their code, by the variants that they run, if callers choose these sizes."""
    thresholds: list[Threshold] = []
    for layer in graph.layers:
        variant = variants.get(layer.name)
        if variant is not None and variant.traits.threshold:
            least = variant.described.parameters[variant.traits.threshold]
            thresholds += _crossing(layer.name, layer.task, least, symbols)
    return thresholds


def _crossing(name: str, task: Task, least: int, symbols: Sequence[Symbol]) -> Iterator[Threshold]:
    """Where the number of a result's places becomes ``least``, along one symbol; nothing if it never does."""
    result = task.results[0]
    places = count_of((result.dims or result.shape)[:-1])
    for moved in (symbol for symbol in symbols if _grows(places, symbol)):
        for part in _OTHERS:
            others = {symbol.name: symbol.at_part(part) for symbol in symbols}
            steps = moved.steps
            index = bisect_left(steps, least, key=lambda size: _at(places, {**others, moved.name: size}))
            if 0 < index < len(steps):
                sides = ({**others, moved.name: steps[place]} for place in (index - 1, index))
                yield Threshold(name, places, *sides)
                return


def crossing_sizes(thresholds: Sequence[Threshold], known: Sequence[Sizes], most: int = MOST_CHECKED) -> list[Sizes]:
    """Sizes by which the code on both sides of changes is checked beside ``known`` ones: those next to each change.

    Where they are more than ``most``, they are chosen one after another, each time the one that brings checked sizes
    nearest to all sides together, by logarithms of numbers of places. So they do at least 63% of what any as many do,
    as it is with each choice of things that do less the more there are.
    """
    sides = [_Side(threshold, is_first) for threshold in thresholds for is_first in (False, True)]
    candidates = [side.sizes for side in sides]
    reached = [[side.distance(sizes) for side in sides] for sizes in candidates]
    away = [min((side.distance(sizes) for sizes in known), default=_FAR) for side in sides]
    chosen = list[Sizes]()
    while len(chosen) < most and any(away):
        nearest = [list(map(min, away, distances)) for distances in reached]
        totals = [*map(math.fsum, nearest)]
        best = totals.index(min(totals))
        chosen.append(candidates[best])
        away = nearest[best]
    return chosen


@dataclass(frozen=True)
class _Side:
    """The sizes next to a change of code, below it or the first ones."""

    threshold: Threshold
    is_first: bool

    @property
    def sizes(self) -> Sizes:
        return self.threshold.first if self.is_first else self.threshold.below

    def distance(self, sizes: Sizes) -> float:
        """How many times as many places other sizes have, as a logarithm; the most if the layer runs other code."""
        places = self.threshold.places
        count, here, first = (_at(places, named) for named in (sizes, self.sizes, self.threshold.first))
        return abs(math.log(max(1, count) / max(1, here))) if (count >= first) == self.is_first else _FAR


def _grows(places: Count, symbol: Symbol) -> bool:
    parts = places.parts if isinstance(places, Product) else (places,)
    return symbol in symbols_in(part for part in parts if isinstance(part, Extent))


def _at(places: Count, sizes: Sizes) -> int:
    return places if isinstance(places, int) else places.at(sizes)
