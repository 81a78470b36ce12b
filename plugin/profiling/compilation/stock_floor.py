"""When the model that IREE compiles whole need not be built, as a plan is far faster.

It is the floor: where it is built, nothing is shipped that runs slower. Building it is an eighth of a cold
compilation, and for most networks of convolutions it takes five times as long as the plan, which its layers tell as
well. A plan that takes longer than was predicted brings it back (``Refiner``).
"""

from __future__ import annotations

from collections.abc import Sequence

from sartor.config import CompileConfig
from sartor.planning.recipe import Recipe
from sartor.policies import Search
from sartor.profiling.refiner import is_far_slower
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.limits import UNLIMITED, Quantity

# A layer's stock code may be much slower alone than as a part of the model: ResNet-50's layers take three times as long
# as the model. What a few layers take beyond this multiple of the best variant's time proves nothing about the model.
_MOST = 16.0


def may_leave_out(config: CompileConfig, *, is_bounded: bool = False) -> bool:
    """Whether a compilation may do without the unsplit model if that is hopeless, and nobody asks for it.

    By software it always may: such a driver takes some ten seconds for it, several times, to learn nothing new. On
    CPUs it must be asked for speed alone, as the unsplit model may take the least memory. A full search compares all.
    """
    policy = config.planning
    if config.vs_stock:
        return False
    if policy.target.is_software:
        return True
    is_plain = policy.quantities == (Quantity.LATENCY,) and policy.limits == UNLIMITED and not policy.target.others
    return policy.target.is_cpu and is_plain and (config.search is Search.MODEL or is_bounded)


def expected_seconds(recipe: Recipe, tables: Tables) -> float:
    """Seconds that the unsplit model is expected to take, by its layers' stock code, each measured alone.

    Args:
        recipe: the unsplit model.
        tables: measured times; a layer of which stock code was not measured counts nothing.
    """
    return sum(_likely(layer.task.key, tables) for layer in recipe.graph.layers)


def is_hopeless(recipe: Recipe, recipes: Sequence[Recipe], tables: Tables, *, is_bounded: bool = False) -> bool:
    """Whether a recipe is the unsplit model, and expected to take so much longer than a plan that it need not run.

    With a time budget that it is expected to be slower at all is enough: its build takes the time of measurements.

    Args:
        recipe: the recipe.
        recipes: those that could run.
        tables: measured or predicted times.
        is_bounded: whether there is a time budget.
    """
    planned = [recipe.plan.predicted for recipe in recipes if recipe.plan.predicted is not None]
    if not recipe.plan.unsplit or not planned:
        return False
    expected = expected_seconds(recipe, tables)
    return expected > min(planned) if is_bounded else is_far_slower(expected, min(planned))


def _likely(key: str, tables: Tables) -> float:
    """Seconds of a layer's stock code that the unsplit model takes, too; 0 if it was not measured.

    Code that was stopped at the time limit counts as much as any code can.
    """
    names = [variant.descriptor for variant in tables.variants[key]]
    times = {name: seconds for name in names if (seconds := tables.seconds(key, name)) is not None}
    stock = tables.measured.get(key, {}).get(names[0])
    if stock is not None and stock.status is Status.TIMEOUT and times:
        return _MOST * min(times.values())
    return min(times[names[0]], _MOST * min(times.values())) if names[0] in times else 0.0
