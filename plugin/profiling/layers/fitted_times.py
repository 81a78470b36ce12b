"""Reconciles the times of layers in a network with the time of the network.

A layer has two times, alone and in the network, and both may be wrong: a process that got no huge pages reads VGG-16's
largest weights in three times the time, which promised a tenth of the network by another routine. The sum of the layers
in the network is known better than each of them.
"""

from __future__ import annotations

from sartor.planning.recipe import Recipe, timed_plan
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.plan import Plan


def fitted_times(in_network: InNetworkTimes, recipe: Recipe, alone: Tables, seconds: float) -> InNetworkTimes:
    """Times in a network that add up to no more than an inference takes, if their times alone do not.

    If they add up to more, what each has beyond its time alone is reduced by the same ratio. If they add up to less,
    they are as they were: between layers the runtime takes time too.

    Args:
        in_network: times of layers and conversions in the network.
        recipe: of the network.
        alone: times measured alone.
        seconds: of an inference.
    """
    own, placed = _seconds(timed_plan(recipe, alone)), _seconds(timed_plan(recipe, corrected(alone, in_network)))
    beyond = sum(max(there - here, 0.0) for here, there in zip(own, placed, strict=True))
    excess = sum(placed) - seconds
    if excess <= 0 or beyond <= 0:
        return in_network
    kept = max(0.0, 1 - excess / beyond)
    return InNetworkTimes(
        {key: _reduced(taken, alone.seconds(*key), kept) for key, taken in in_network.layers.items()},
        {kind: _reduced(taken, alone.adapts.get(kind), kept) for kind, taken in in_network.adapts.items()},
    )


def _seconds(plan: Plan) -> list[float]:
    """Seconds of all layers and conversions of a plan, in order."""
    return [*(costed.seconds or 0.0 for costed in plan.layers), *(costed.seconds or 0.0 for costed in plan.adapts)]


def _reduced(taken: float, alone: float | None, kept: float) -> float:
    """A time of which a part of what it has beyond the time alone is kept."""
    return taken if alone is None or taken <= alone else alone + kept * (taken - alone)
