"""Explains which limits cannot be met, and the nearest limits that can."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter

from sartor.errors import InfeasibleError
from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.problem.limits import Amounts, Limits, Quantity
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing

_SECONDS = 10.0
"""Time limit of finding the nearest limits, which comes after the time limit of the search that found no plan."""


class LimitError(InfeasibleError):
    """No plan keeps to the limits.

    Attributes:
        nearest: for each quantity whose limit no plan meets the least amount that a plan needs.
    """

    def __init__(self, message: str, nearest: Amounts) -> None:
        super().__init__(message)
        self.nearest = nearest


def unmet(quantity: Quantity, bound: float, nearest: float, condition: str = "") -> str:
    """The sentence about a limit that no plan meets, and the nearest limit that one does.

    Args:
        quantity: what is limited.
        bound: the limit.
        nearest: the least amount that a plan needs.
        condition: clause about the plans meant, after "any plan".
    """
    return (
        f"the {quantity} limit of {amount(quantity, bound)} cannot be met: any plan{condition} needs at least "
        f"{amount(quantity, nearest)}; allow that much"
    )


def no_plan(search: BoundedSearch, limits: Limits, proven: bool) -> InfeasibleError:
    """The error for a search without result: which limits cannot be met, or that time was up.

    Args:
        search: what found none.
        limits: on the plan.
        proven: whether there is none.

    Raises:
        InfeasibleError: if no plan exists even without limits; it names a layer without possible choices.
    """
    greedy.select(search.problem)
    if proven:
        return explain(search, limits)
    asked = " and ".join(f"{amount(quantity, bound)} of {quantity}" for quantity, bound in limits.bounds.items())
    within = f" within {asked}" if asked else ""
    return InfeasibleError(f"no plan{within} was found in the time allowed; allow more, or pin layers to routines")


def explain(search: BoundedSearch, limits: Limits, seconds: float = _SECONDS) -> LimitError:
    """The error for a net whose plans all exceed the limits.

    It names every limit that no plan meets, with the nearest limit that one does, within the other limits if possible.
    If each limit can be met but not both, it names the nearest value of either. The named values are amounts that a
    plan needs, so they can be met exactly. If they are not found in time, it says so.
    """
    bounds = limits.bounds
    both = " and ".join(f"{amount(quantity, bounds[quantity])} of {quantity}" for quantity in bounds)
    least = _Least(search, perf_counter() + seconds)
    try:
        broken = [quantity for quantity in bounds if least.of(quantity, {}) > bounds[quantity]]
        if broken:
            return _unmet_each(least, broken, bounds)
        nearest = {quantity: least.of(quantity, _without(bounds, quantity)) for quantity in bounds}
    except TimeoutError:
        message = f"no plan keeps to {both}; the nearest limits that one keeps to were not found in time"
        return LimitError(message, {})
    either = " or ".join(f"{amount(quantity, value)} of {quantity}" for quantity, value in nearest.items())
    return LimitError(
        f"the limits {both} can each be met, but not together: keeping the other limit a plan needs at least {either}",
        nearest,
    )


def amount(quantity: Quantity, value: float) -> str:
    """A value as text that can be given as a limit."""
    if quantity not in (Quantity.MEMORY, Quantity.REPEATED):
        return repr(value)
    size = str(int(value)) if float(value).is_integer() else repr(value)
    return f"{size} B ({value / 2**20:.2f} MiB)"


class _Least:
    """Finds least amounts, until time is up."""

    def __init__(self, search: BoundedSearch, deadline: float) -> None:
        self._search = search
        self._deadline = deadline

    def of(self, quantity: Quantity, bounds: Amounts) -> float:
        """The least amount that a plan within the bounds needs; infinite if there is no such plan.

        Raises:
            TimeoutError: if it is not proven in time.
        """
        solution = self._search.least(quantity, bounds, self._deadline)
        if not solution.proven:
            raise TimeoutError
        return math.inf if isinstance(solution, Nothing) else float(solution.needed[quantity])


def _unmet_each(least: _Least, broken: Sequence[Quantity], bounds: Amounts) -> LimitError:
    nearest = {quantity: _nearest(least, quantity, bounds) for quantity in broken}
    sentences = (unmet(quantity, bounds[quantity], *nearest_value) for quantity, nearest_value in nearest.items())
    return LimitError("; ".join(sentences), {quantity: value for quantity, (value, _) in nearest.items()})


def _nearest(least: _Least, quantity: Quantity, bounds: Amounts) -> tuple[float, str]:
    """The least amount that a plan needs, and the clause about the plans that it holds for."""
    others = _without(bounds, quantity)
    nearest = least.of(quantity, others)
    if not others or nearest == math.inf:
        return least.of(quantity, {}), ""
    return nearest, f" that meets the limit of {', '.join(others)}"


def _without(bounds: Amounts, quantity: Quantity) -> dict[Quantity, float]:
    return {other: bound for other, bound in bounds.items() if other is not quantity}
