"""Explains which limits cannot be met, and the nearest limits that can."""

from __future__ import annotations

import math

from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.limits import Amounts, Limits, Quantity
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing


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


def explain(search: BoundedSearch, limits: Limits) -> LimitError:
    """The error for a net whose plans all exceed the limits.

    It names every limit that no plan meets, with the nearest limit that one does, within the other limits if possible.
    If each limit can be met but not both, it names the nearest value of either. The named values are amounts that a
    plan needs, so they can be met exactly.
    """
    bounds = limits.bounds
    broken = [quantity for quantity in bounds if _least(search, quantity, {}) > bounds[quantity]]
    if broken:
        nearest = {quantity: _nearest(search, quantity, bounds) for quantity in broken}
        sentences = (unmet(quantity, bounds[quantity], *found) for quantity, found in nearest.items())
        return LimitError("; ".join(sentences), {quantity: least for quantity, (least, _) in nearest.items()})
    both = " and ".join(f"{amount(quantity, bounds[quantity])} of {quantity}" for quantity in bounds)
    least = {quantity: _least(search, quantity, _without(bounds, quantity)) for quantity in bounds}
    either = " or ".join(f"{amount(quantity, value)} of {quantity}" for quantity, value in least.items())
    return LimitError(
        f"the limits {both} can each be met, but not together: keeping the other limit a plan needs at least {either}",
        least,
    )


def amount(quantity: Quantity, value: float) -> str:
    """A value as text that can be given as a limit."""
    if quantity is not Quantity.MEMORY:
        return repr(value)
    size = str(int(value)) if float(value).is_integer() else repr(value)
    return f"{size} B ({value / 2**20:.2f} MiB)"


def _nearest(search: BoundedSearch, quantity: Quantity, bounds: Amounts) -> tuple[float, str]:
    """The least amount that a plan needs, and the clause about the plans that it holds for."""
    others = _without(bounds, quantity)
    nearest = _least(search, quantity, others)
    if not others or nearest == math.inf:
        return _least(search, quantity, {}), ""
    return nearest, f" that meets the limit of {', '.join(others)}"


def _least(search: BoundedSearch, quantity: Quantity, bounds: Amounts) -> float:
    """The least amount that a plan within the bounds needs; infinite if there is no such plan."""
    found = search.least(quantity, bounds)
    return math.inf if isinstance(found, Nothing) else float(found.needed[quantity])


def _without(bounds: Amounts, quantity: Quantity) -> dict[Quantity, float]:
    return {other: bound for other, bound in bounds.items() if other is not quantity}
