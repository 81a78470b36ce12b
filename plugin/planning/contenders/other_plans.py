"""Plans beside the selected one: on one device, overlapping, and with the least regret over the sizes of calls.

By the tables a plan for several devices is faster than one for the CPU alone. But its transfers and the GPU's short
dispatches are measured less exactly than the layers on the CPU, so it is shipped only if it is faster as a whole
network too.

With the objective cold the tables minimise the sum of what a plan executes and what it reads, as on one core. A session
overlaps both (NNV12, section 3.3): its first inference takes as long as a pipeline of the two queues, whose time
``tuning/selection/overlap`` computes and minimises exactly. How far both overlap depends on the disk, on what the page
cache holds and on other programs. So the plan with the shortest pipeline and the one that executes fastest, the best
where all is in memory, run as whole networks beside that with the least sum; what is shipped is decided by first
inferences that are timed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import Selected
from sartor.planning.recipe import Recipe, timed_plan
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits
from sartor.tuning.selection.regret import least_regret

_LOG = logging.getLogger(__name__)


def home_plans(
    selector: PlanSelector, tables: Tables, selected: Sequence[Recipe], limits: Limits
) -> tuple[list[Recipe], Tables]:
    """The best plan on the device of the network's inputs and outputs, unless a plan that was selected is on it alone.

    Args:
        selector: selects for all devices.
        tables: costs.
        selected: plans for all devices.
        limits: on all plans.

    Returns:
        At most one plan, and the tables with conversions that were measured for it.
    """
    home = selector.policy.target.device
    if any(recipe.devices == (home,) for recipe in selected):
        return [], tables
    try:
        (best, *_), tables = selector.on_device(home).select(tables, limits)
    except InfeasibleError as error:
        _LOG.info("there is no plan on %s alone: %s", home, error)
        return [], tables
    return [best], tables


def overlapped_plans(selector: PlanSelector, tables: Tables, selected: Sequence[Recipe], limits: Limits) -> Selected:
    """The plan with the shortest overlapped first inference, and the fastest, unless they were selected.

    Args:
        selector: selects for the first inference; with another objective there is nothing to add.
        tables: costs.
        selected: the best plans by the sum.
        limits: on all plans.

    Returns:
        The plans, and the tables with what was measured for them.
    """
    if selector.policy.objective is not Objective.COLD or tables.loading is None:
        return [], tables
    try:
        plans, tables = selector.overlapped(tables, limits)
    except InfeasibleError as error:
        _LOG.info("there are no other plans for the first inference: %s", error)
        return [], tables
    recipes: list[Recipe] = []
    for plan in plans:
        if not any(plan.is_same_as(other) for other in [*selected, *recipes]):
            recipes.append(plan)
    return recipes, tables


def regret_plans(selector: PlanSelector, tables: Tables, limits: Limits) -> Selected:
    """The plan with the least regret by the tables, then the best plans for each call, by which it is judged.

    Args:
        selector: knows the times with the sizes of each call.
        tables: costs; what failed in them is in no plan.
        limits: on all plans.

    Returns:
        The plans, each once, and the tables with what was measured for them.

    Raises:
        InfeasibleError: if there is none.
    """
    adapts = tables
    sized = [of_call(tables, measured) for measured in selector.by_call]

    def find(weights: Sequence[float]) -> tuple[Recipe, list[float]]:
        nonlocal adapts
        (best, *_), adapts = selector.select(weighted(adapts, sized, weights), limits)
        return best, [timed_plan(best, own.with_adapts(adapts)).predicted or 0.0 for own in sized]

    least = least_regret(find, len(sized))
    _LOG.info("by the tables the least regret is %.3f, and no plan has less than %.3f", least.regret, least.bound)
    tables = tables.with_adapts(adapts)
    plans: list[Recipe] = []
    for plan in (least.plan, *least.singles):
        if not any(plan.is_same_as(other) for other in plans):
            plans.append(replace(plan, plan=timed_plan(plan, tables)))
    return plans, tables


def of_call(tables: Tables, measured: Mapping[str, Mapping[str, Measurement]]) -> Tables:
    """The tables with the times of one call; what was not timed with its sizes takes as long as in the mean."""
    own = replace(tables, measured=measured)
    return _timed(tables, lambda key, name, mean: own.seconds(key, name) or mean)


def weighted(tables: Tables, sized: Sequence[Tables], weights: Sequence[float]) -> Tables:
    """The tables with the sum of each variant's times in several others, each multiplied by its weight."""

    def summed(key: str, name: str, mean: float) -> float:
        seconds = [own.seconds(key, name) or mean for own in sized]
        return sum(weight * own for weight, own in zip(weights, seconds, strict=True))

    return _timed(tables, summed)


def _timed(tables: Tables, seconds: Callable[[str, str, float], float]) -> Tables:
    """The tables with other times of the variants that work, given their tasks, names and times."""

    def timed(key: str, name: str, known: Measurement) -> Measurement:
        mean = tables.seconds(key, name)
        taken = () if mean is None else (seconds(key, name, mean),)
        return replace(known, samples=taken, baseline_samples=()) if taken else known

    measured = {
        key: {name: timed(key, name, known) for name, known in tables.measured.get(key, {}).items()}
        for key in tables.variants
    }
    return replace(tables, measured={**tables.measured, **measured})
