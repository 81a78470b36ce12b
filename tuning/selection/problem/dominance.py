"""Removes options that no optimal plan needs.

Option b of a layer dominates option a if b never costs more in its place: the difference of their values, plus the
least difference of adapts on each link over all options at its other end, is not negative (Goldstein, "Efficient
rotamer elimination applied to protein side-chains and related spin glasses", 1994). Removing an option may make others
dominated, so this is repeated. Where links share a conversion, b is taken to pay for it alone, and a to find it paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, Layer, Link, Mask
from sartor.tuning.selection.problem.shared_conversions import Relaxed

_ROUNDS = 8


def undominated(relaxed: Relaxed) -> tuple[list[Mask], Relaxed]:
    """For each layer a mask of options, and the problem with only these, which has the same optimum.

    Of equal options the earlier is kept.
    """
    model = relaxed.origin
    kept = [np.ones(len(layer.options), dtype=np.bool_) for layer in model.layers]
    inbound: list[list[_Costs]] = [[] for _ in model.layers]
    outbound: list[list[_Costs]] = [[] for _ in model.layers]
    for index, link in enumerate(model.links):
        costs = _Costs(link, *relaxed.least_and_most(index))
        inbound[link.consumer].append(costs)
        outbound[link.producer].append(costs)
    for _ in range(_ROUNDS):
        before = sum(int(mask.sum()) for mask in kept)
        for index in range(len(model.layers)):
            _drop_dominated(model, inbound[index], outbound[index], kept, index)
        if sum(int(mask.sum()) for mask in kept) == before:
            break
    return kept, relaxed.within(restrict(model, kept))


class _Costs(NamedTuple):
    """The least and the most that a link adds to the cost of a plan, by outputs and options."""

    link: Link
    least: Floats
    most: Floats


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


def _drop_dominated(
    model: IndexedProblem, inbound: Sequence[_Costs], outbound: Sequence[_Costs], kept: list[Mask], index: int
) -> None:
    own = np.flatnonzero(kept[index])
    layer = model.layers[index]
    pairs = [[array[layer.output_of[own]][:, kept[link.consumer]] for array in both] for link, *both in outbound]
    for link, *both in inbound:
        written = np.unique(model.layers[link.producer].output_of[kept[link.producer]])
        pairs.append([array[np.ix_(written, own)].T for array in both])
    saved = layer.values[own, np.newaxis] - layer.values[own]
    # If one link forbids the first option and another link the second, neither dominates the other.
    with np.errstate(invalid="ignore"):
        for least, most in pairs:
            saved += _least_difference(least, most)
    left = np.ones(len(own), dtype=np.bool_)
    for option, savings in enumerate(saved):
        left[option] = False
        left[option] = not ((savings[left] > 0).any() or (savings[:option][left[:option]] == 0).any())
    kept[index][own] = left


def _least_difference(least: Floats, most: Floats) -> Floats:
    """For each pair of rows the least difference of the first's least and the second's most over the columns.

    A column in which the first is infinite does not count, even if the second is infinite too.
    """
    first, second = least[:, np.newaxis], most[np.newaxis]
    difference: Floats = np.where(np.isinf(first), np.inf, first - second).min(axis=2)
    return difference
