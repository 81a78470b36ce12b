"""Removes options that no optimal plan needs.

Option b of a layer dominates option a if b never costs more in its place: the difference of their values, plus the
least difference of adapts on each link over all options at its other end, is not negative (Goldstein, "Efficient
rotamer elimination applied to protein side-chains and related spin glasses", 1994). Removing an option may make others
dominated, so this is repeated. Links are taken to share no conversions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Layer, Link, Mask

_ROUNDS = 8


def undominated(model: IndexedProblem) -> list[Mask]:
    """For each layer a mask of options. The problem with only these options has the same optimum.

    Of equal options the earlier is kept.
    """
    kept = [np.ones(len(layer.options), dtype=np.bool_) for layer in model.layers]
    outbound: list[list[Link]] = [[] for _ in model.layers]
    for link in model.links:
        outbound[link.producer].append(link)
    for _ in range(_ROUNDS):
        before = sum(int(mask.sum()) for mask in kept)
        for index in range(len(model.layers)):
            _drop_dominated(model, outbound[index], kept, index)
        if sum(int(mask.sum()) for mask in kept) == before:
            break
    return kept


def restrict(model: IndexedProblem, kept: Sequence[Mask]) -> IndexedProblem:
    """The problem with some of the options; ``kept`` masks at least one of every layer."""
    layers = tuple(_restrict_layer(layer, mask) for layer, mask in zip(model.layers, kept, strict=True))
    written = [np.unique(layer.output_of[mask]) for layer, mask in zip(model.layers, kept, strict=True)]
    links = tuple(
        replace(
            link,
            costs=link.costs[np.ix_(written[link.producer], kept[link.consumer])],
            needed=link.needed[kept[link.consumer]],
        )
        for link in model.links
    )
    return replace(model, layers=layers, links=links)


def _restrict_layer(layer: Layer, kept: Mask) -> Layer:
    written, output_of = np.unique(layer.output_of[kept], return_inverse=True)
    return replace(
        layer,
        options=tuple(option for option, keep in zip(layer.options, kept, strict=True) if keep),
        outputs=tuple(layer.outputs[output] for output in written),
        output_of=output_of,
        values=layer.values[kept],
    )


def _drop_dominated(model: IndexedProblem, outbound: Sequence[Link], kept: list[Mask], index: int) -> None:
    own = np.flatnonzero(kept[index])
    layer = model.layers[index]
    tables = [link.costs[layer.output_of[own]][:, kept[link.consumer]] for link in outbound]
    for link in model.inbound[index]:
        written = np.unique(model.layers[link.producer].output_of[kept[link.producer]])
        tables.append(link.costs[np.ix_(written, own)].T)
    saved = layer.values[own, np.newaxis] - layer.values[own]
    # If one link forbids the first option and another link the second, neither dominates the other.
    with np.errstate(invalid="ignore"):
        for table in tables:
            saved += _least_difference(table)
    left = np.ones(len(own), dtype=np.bool_)
    for option, savings in enumerate(saved):
        left[option] = False
        left[option] = not ((savings[left] > 0).any() or (savings[:option][left[:option]] == 0).any())
    kept[index][own] = left


def _least_difference(costs: Floats) -> Floats:
    """For each pair of rows the least difference of first and second over the columns.

    A column in which the first is infinite does not count, even if the second is infinite too.
    """
    first, second = costs[:, np.newaxis], costs[np.newaxis]
    least: Floats = np.where(np.isinf(first), np.inf, first - second).min(axis=2)
    return least
