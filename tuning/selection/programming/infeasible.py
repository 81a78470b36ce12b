"""Which limit cannot be met, and what could be."""

from __future__ import annotations

import math

from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.limits import Amounts, Limits, Quantity
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing


class LimitError(InfeasibleError):
    """No plan keeps to the limits.

    Attributes:
        nearest: the least that a plan needs of each quantity whose limit no plan meets.
    """

    def __init__(self, message: str, nearest: Amounts) -> None:
        super().__init__(message)
        self.nearest = nearest


def unmet(quantity: Quantity, bound: float, nearest: float, condition: str = "") -> str:
    """The sentence for a limit that no plan meets, and what can be given as a limit instead."""
    return (
        f"the {quantity} limit of {amount(quantity, bound)} cannot be met: any plan{condition} needs at least "
        f"{amount(quantity, nearest)}; allow that much"
    )


def explain(search: BoundedSearch, limits: Limits) -> LimitError:
    """The error for a net that has plans, but none within the limits.

    It names every limit that no plan meets and the nearest that one does, within the other limits if that is
    possible. Where each limit can be met, but not with the other, it says how far either has to give way. The
    values named are what a plan needs, so they can be met exactly.
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
    """A value so that it can be given as a limit again."""
    if quantity is not Quantity.MEMORY:
        return repr(value)
    size = str(int(value)) if float(value).is_integer() else repr(value)
    return f"{size} B ({value / 2**20:.2f} MiB)"


def _nearest(search: BoundedSearch, quantity: Quantity, bounds: Amounts) -> tuple[float, str]:
    """What a plan needs at least, and of which plans that is said."""
    others = _without(bounds, quantity)
    nearest = _least(search, quantity, others)
    if not others or nearest == math.inf:
        return _least(search, quantity, {}), ""
    return nearest, f" that meets the limit of {', '.join(others)}"


def _least(search: BoundedSearch, quantity: Quantity, bounds: Amounts) -> float:
    """The least that a plan within the bounds needs, infinite if there is no such plan."""
    found = search.least(quantity, bounds)
    return math.inf if isinstance(found, Nothing) else float(found.needed[quantity])


def _without(bounds: Amounts, quantity: Quantity) -> dict[Quantity, float]:
    return {other: bound for other, bound in bounds.items() if other is not quantity}
