"""Which limit cannot be met, and what could be."""

from __future__ import annotations

import math

from sartor.errors import InfeasibleError
from sartor.tuning.selection.bounded_search import BoundedSearch, Nothing
from sartor.tuning.selection.limits import Amounts, Limits, Quantity


def explain(search: BoundedSearch, limits: Limits) -> InfeasibleError:
    """The error for a net that has plans, but none within the limits.

    It names every limit that no plan meets and the nearest that one does, within the other limits if that is
    possible. Where each limit can be met, but not with the other, it says how far either has to give way. The
    values named are what a plan needs, so they can be met exactly.
    """
    bounds = limits.bounds
    broken = [quantity for quantity in bounds if _least(search, quantity, {}) > bounds[quantity]]
    if broken:
        return InfeasibleError("; ".join(_one(search, quantity, bounds) for quantity in broken))
    both = " and ".join(f"{amount(quantity, bounds[quantity])} of {quantity}" for quantity in bounds)
    nearest = " or ".join(
        f"{amount(quantity, _least(search, quantity, _without(bounds, quantity)))} of {quantity}" for quantity in bounds
    )
    return InfeasibleError(
        f"the limits {both} can each be met, but not together: keeping the other limit a plan needs at least {nearest}"
    )


def amount(quantity: Quantity, value: float) -> str:
    """A value so that it can be given as a limit again."""
    if quantity is not Quantity.MEMORY:
        return repr(value)
    size = str(int(value)) if value.is_integer() else repr(value)
    return f"{size} B ({value / 2**20:.2f} MiB)"


def _one(search: BoundedSearch, quantity: Quantity, bounds: Amounts) -> str:
    others = _without(bounds, quantity)
    nearest, condition = _least(search, quantity, others), f" that meets the limit of {', '.join(others)}"
    if not others or nearest == math.inf:
        nearest, condition = _least(search, quantity, {}), ""
    return (
        f"the {quantity} limit of {amount(quantity, bounds[quantity])} cannot be met: any plan{condition} needs at "
        f"least {amount(quantity, nearest)}; allow that much"
    )


def _least(search: BoundedSearch, quantity: Quantity, bounds: Amounts) -> float:
    """The least that a plan within the bounds needs, infinite if there is no such plan."""
    found = search.least(quantity, bounds)
    return math.inf if isinstance(found, Nothing) else float(found.needed[quantity])


def _without(bounds: Amounts, quantity: Quantity) -> dict[Quantity, float]:
    return {other: bound for other, bound in bounds.items() if other is not quantity}
