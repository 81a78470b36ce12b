"""The plan that is predicted: what ships where nothing better was measured, if it proves right.

A variant that was never run here may be wrong, or not compile. What is wrong shows when the network runs. Then the
layers are checked one by one, and the next plan is without those that failed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.profiling.profiler import Profiler
from sartor.profiling.verdicts import is_rounded
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.limits import Quantity

_LOG = logging.getLogger(__name__)

Mending = Callable[[Recipe, Tables], Tables | None]
"""Returns tables without what is wrong in a plan; None if each of its layers is right."""


def has_floor(config: CompileConfig, time: TimeBudget) -> bool:
    """Whether a predicted plan runs before anything is measured: within a time budget, if speed alone decides.

    Memory and first inferences are not predicted, and what a plan on two devices takes is in transfers.
    """
    is_one = config.target.is_cpu and not config.target.others
    return time.is_bounded and is_one and config.planning.quantities == (Quantity.LATENCY,)


def wrong_plan(recipes: Sequence[Recipe], profiler: Profiler, budget: ErrorBudget) -> Recipe | None:
    """The first of some recipes, which is a plan, if it does not compile, run, or compute what the model does.

    That it rounds more than ``budget`` allows is no defect: other limits are selected by then.

    Raises:
        DisturbedError: if something outside may have ended it.
    """
    plan = recipes[0]
    if plan.plan.unsplit:
        return None
    try:
        profiler.run(recipes)
        is_right = profiler.is_right(plan) and profiler.verify(plan)
        run = profiler.run_of(plan)
    except DisturbedError:
        raise
    except CompileError as error:
        _LOG.warning("the predicted plan does not compile: %s", str(error).partition("\n")[0])
        return plan
    is_rounding = run is not None and run.status is Status.WRONG_RESULT and (budget.narrow or is_rounded(run, budget))
    return None if is_right or is_rounding else plan


def without_wrong(recipe: Recipe, tables: Tables, tuner: Tuner) -> Tables | None:
    """Check each layer of a wrong plan alone, beside stock code or ONNX Runtime.

    Args:
        recipe: the plan.
        tables: by which it was selected.
        tuner: measures without a deadline, as no plan would be right else.

    Returns:
        The tables with what was found, so that the next plan is without the variants that failed; None if none did.
    """
    chosen: defaultdict[str, set[str]] = defaultdict(set)
    for layer in recipe.graph.layers:
        chosen[layer.task.key].add(recipe.variants[layer.name].descriptor)
    cases = [
        replace(case, variants=tuple(variant for variant in case.variants if variant.descriptor in names))
        for case in tuned_cases(recipe.graph, tables.variants)
        if (names := {case.variants[0].descriptor, *chosen[case.key]})
    ]
    _LOG.warning("the predicted plan is wrong: its %d kinds of layers are checked one by one", len(cases))
    tuner.measure_anew(cases)
    known = tuner.known(cases)
    failed = {
        name: measurement.status.value
        for case in cases
        for name, measurement in known[case.key].items()
        if name in chosen[case.key] and measurement.status is not Status.OK and not measurement.is_transient
    }
    if not failed:
        return None
    _LOG.warning("%d variants are left out: %s", len(failed), ", ".join(f"{name} ({failed[name]})" for name in failed))
    measured = {key: {**tables.measured.get(key, {}), **measurements} for key, measurements in known.items()}
    return replace(tables, measured={**tables.measured, **measured})
