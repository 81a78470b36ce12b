"""Min-plus elimination of variables from a sum of tables, and enumeration of its cheapest assignments.

A factor is a table over a few variables. To eliminate a variable, all factors that contain it are added and minimised
over it, which leaves one factor over their other variables. After the last variable the minimum of the sum is known,
and going back through the steps finds the assignment that attains it. This is dynamic programming in the order of
elimination (Bertelè and Brioschi, "Nonserial Dynamic Programming", 1972).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from typing import NamedTuple

import numpy as np

from sartor.tuning.selection.problem.indexed import Floats


@dataclass(frozen=True, eq=False)
class Factor:
    """A table with one axis for each variable of ``scope``, which is sorted.

    ``layer`` is the last layer, in topological order, whose costs the table contains.
    """

    scope: tuple[int, ...]
    table: Floats
    layer: int


@dataclass(frozen=True, eq=False)
class Step:
    """The elimination of ``variable`` from the sum of ``parts``."""

    variable: int
    parts: tuple[Factor, ...]

    def costs(self, values: Sequence[int]) -> Floats:
        """The sum of the parts along the eliminated variable, for given ``values`` of the other variables."""
        return reduce(np.add, (part.table[self._row(part, values)] for part in self.parts))

    def _row(self, part: Factor, values: Sequence[int]) -> tuple[int | slice, ...]:
        return tuple(slice(None) if axis == self.variable else values[axis] for axis in part.scope)


@dataclass(frozen=True, eq=False)
class Elimination:
    """The steps in order, and the minimum of the sum."""

    steps: tuple[Step, ...]
    minimum: float


class DeadEndError(Exception):
    """The sum is infinite everywhere; ``layer`` is the last layer of the table that is."""

    def __init__(self, layer: int) -> None:
        super().__init__(layer)
        self.layer = layer


def eliminate(factors: Sequence[Factor], variables: Sequence[int]) -> Elimination:
    """Minimise the sum of ``factors`` by eliminating all their variables in the given order.

    Raises:
        DeadEndError: if no assignment has a finite sum.
    """
    for factor in factors:
        if not factor.scope and np.isinf(factor.table):
            raise DeadEndError(factor.layer)
    pool = dict(enumerate(factors))
    mentions: dict[int, list[int]] = {variable: [] for variable in variables}
    for key, factor in pool.items():
        for variable in factor.scope:
            mentions[variable].append(key)
    steps: list[Step] = []
    for fresh, variable in enumerate(variables, start=len(pool)):
        parts = tuple(pool.pop(key) for key in mentions[variable] if key in pool)
        steps.append(Step(variable, parts))
        pool[fresh] = _minimise(parts, variable)
        for other in pool[fresh].scope:
            mentions[other].append(fresh)
    return Elimination(tuple(steps), sum(float(factor.table) for factor in pool.values()))


def cheapest(elimination: Elimination, values: Sequence[int], k: int) -> list[list[int]]:
    """The ``k`` cheapest assignments, cheapest first; among equals those with lower values first.

    Going back through the steps, the regret of a variable's value (its cost above that of the cheapest value, given the
    variables settled before) is exactly the extra cost of the whole assignment. So the next best assignment deviates
    from a known one in a single variable of known regret, and takes the cheapest values after that. This is Lawler's
    partition ("A procedure for computing the k best solutions", 1972), with the optimum of every part known.

    ``values`` has the values of variables that no step eliminates; its other entries are ignored.
    """
    steps = tuple(reversed(elimination.steps))
    picked_values: list[list[int]] = []
    deviations = [_Deviation(0.0, 0, list(values), 0)]
    serials = count(1)
    while deviations and len(picked_values) < k:
        room = k - len(picked_values) - 1
        taken = deviations.pop(0)
        picked_values.append(taken.values)
        for level in range(taken.level, len(steps)):
            costs = steps[level].costs(taken.values)
            best = int(np.argmin(costs))
            regrets = taken.regret + (costs - costs[best])
            for value in _worth_trying(regrets, best, deviations, room):
                taken.values[steps[level].variable] = value
                insort(deviations, _Deviation(float(regrets[value]), next(serials), taken.values[:], level + 1))
                del deviations[room:]
            taken.values[steps[level].variable] = best
    return picked_values


class _Deviation(NamedTuple):
    """An assignment of the variables before ``level``; its best completion costs ``regret`` above the optimum."""

    regret: float
    serial: int
    values: list[int]
    level: int


def _worth_trying(regrets: Floats, best: int, deviations: Sequence[_Deviation], room: int) -> list[int]:
    """The values other than ``best`` that may be among the next ``room`` assignments."""
    if not room:
        return []
    limit = deviations[-1].regret if len(deviations) >= room else np.inf
    return [int(value) for value in np.flatnonzero(regrets < limit) if value != best]


def _minimise(parts: Sequence[Factor], variable: int) -> Factor:
    """The sum of ``parts``, all of which mention ``variable``, minimised over it."""
    scope = tuple(sorted({axis for part in parts for axis in part.scope}))
    joined = reduce(np.add, (part.table.reshape(_spread(part, scope)) for part in parts))
    table = joined.min(axis=scope.index(variable))
    layer = max(part.layer for part in parts)
    if not np.isfinite(table).any():
        raise DeadEndError(layer)
    return Factor(tuple(axis for axis in scope if axis != variable), table, layer)


def _spread(part: Factor, scope: Sequence[int]) -> tuple[int, ...]:
    """The shape in which the part's table broadcasts over ``scope``."""
    lengths = dict(zip(part.scope, part.table.shape, strict=True))
    return tuple(lengths.get(axis, 1) for axis in scope)
