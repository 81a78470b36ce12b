"""The sizes at which layers of a plan change from one version of their code to the other: one less, and the first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.sizes.dims import Count, Extent, Product, Symbol, count_of, symbols_in
from sartor.codegen.ir.variants.routine import Variant

# Parts of the octaves of a range that other symbols have where one crosses a threshold, the first that lets it.
_OTHERS = (0.5, 0.0, 1.0)

Sizes = dict[str, int]


@dataclass(frozen=True)
class Threshold:
    """Where a layer changes its code.

    Attributes:
        layer: its name.
        below, first: the last sizes of one version, and the next ones, by name.
    """

    layer: str
    below: Sizes
    first: Sizes

    def __str__(self) -> str:
        """What is told of it."""
        (changed,) = (name for name, size in self.first.items() if self.below[name] != size)
        others = ", ".join(f"{name}={size}" for name, size in self.first.items() if name != changed)
        return f"'{self.layer}' runs other code from {changed}={self.first[changed]} on" + (
            f", with {others}" if others else ""
        )


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
                yield Threshold(name, {**others, moved.name: steps[index - 1]}, {**others, moved.name: steps[index]})
                return


def _grows(places: Count, symbol: Symbol) -> bool:
    parts = places.parts if isinstance(places, Product) else (places,)
    return symbol in symbols_in(part for part in parts if isinstance(part, Extent))


def _at(places: Count, sizes: Mapping[str, int]) -> int:
    return places if isinstance(places, int) else places.at(sizes)
