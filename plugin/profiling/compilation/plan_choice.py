"""Which plans run as whole networks, and which of them is the best when they have run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from sartor.codegen.ir.graph import LayerGraph
from sartor.config import CompileConfig
from sartor.costing.layer_costs import make_tuner
from sartor.costing.predicted_costs import predicted_tables
from sartor.costing.resource_costs import measure_resource_costs
from sartor.errors import CompileError, DisturbedError, InfeasibleError
from sartor.planning.contenders.other_plans import home_plans, overlapped_plans, regret_plans
from sartor.planning.contenders.single_type_plans import single_precision_plans
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe, timed_plan, unsplit_recipe
from sartor.planning.rounding_assessment import assess
from sartor.precision.sensitivity import Sensitivities
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.floor import Mending, wrong_plan
from sartor.profiling.compilation.stock_floor import expected_seconds, is_hopeless
from sartor.profiling.profiler import Profiler
from sartor.profiling.refinement import Refined
from sartor.profiling.refiner import BROKEN, Refiner
from sartor.profiling.verdicts import budget_of_model
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.selection.programming.infeasible import LimitError


class _Runs(Protocol):
    def run(self, recipes: Sequence[Recipe]) -> None:
        """Run those that did not run yet; ``CompileError`` if none compiles."""

    def run_of(self, recipe: Recipe) -> Measurement | None:
        """How a recipe ended; None if it did not run."""


def lost_by_fusion(recipes: Sequence[Recipe], runs: _Runs) -> str | None:
    """How the first plan with fused layers ended, if no plan works and there is such a one; else None.

    That none compiles is such an end: plans without fused layers, and networks in reserve, may still compile.

    Raises:
        DisturbedError: if something outside may have ended them.
    """
    plans = [recipe for recipe in recipes if not recipe.plan.unsplit]
    fused = [plan for plan in plans if any(layer.task.stages for layer in plan.graph.layers)]
    if not fused:
        return None
    try:
        runs.run(recipes)
    except DisturbedError:
        raise
    except CompileError as error:
        return _told(Status.COMPILE_FAILED, str(error))
    ends = [runs.run_of(plan) for plan in plans]
    if not all(end is not None and end.status in BROKEN for end in ends):
        return None
    end = runs.run_of(fused[0])
    return None if end is None else _told(end.status, end.message)


def _told(status: Status, message: str) -> str:
    return f"{status.value}: {message.partition(chr(10))[0]}"


def without_fusions(tables: Tables, graph: LayerGraph) -> Tables:
    """The tables without times of fused layers, so that none are selected."""
    fused = {fusion.layer.task.key for fusion in graph.fusions}
    return replace(
        tables, measured={key: measurements for key, measurements in tables.measured.items() if key not in fused}
    )


_LOG = logging.getLogger(__name__)


def predicted_recipe(
    candidacy: Candidacy, config: CompileConfig, bench: Bench, folder: Path, *, whole: bool = True
) -> Recipe:
    """The best plan by predicted costs; the errors of narrower types are simulated as for any other target.

    Arguments are those of ``tune_network``.

    Raises:
        InfeasibleError: if no plan meets the pins and limits.
    """
    imported, policy, pool, calibration = candidacy.imported, config.planning, bench.pool, candidacy.calibration
    store, progress = bench.store, bench.progress
    budget = budget_of_model(config.error_budget, imported, calibration.samples)
    tuner = make_tuner(store, pool, config.target, progress)
    tables, costs = predicted_tables(imported, candidacy.candidates, tuner, policy)
    tables = measure_resource_costs(tables, imported.graph, store, pool, folder, config.target, policy.quantities)
    cache = SensitivityCache.beside(config.database)
    rounding = Sensitivities(imported, calibration, pool, budget.measure, config.jobs, cache, progress)
    tables, plan_errors = assess(tables, rounding, budget, policy.precision)
    selector = PlanSelector(PlanSolver(imported, costs, policy, progress), budget, plan_errors)
    try:
        return selector.select(tables, policy.limits)[0][0]
    except InfeasibleError as error:
        if policy.pins or policy.limits != UNLIMITED or not whole:
            raise
        _LOG.warning("%s: only the unsplit model is left", error)
        return unsplit_recipe(imported, policy)


def choose(
    tables: Tables, selector: PlanSelector, profiler: Profiler, *, whole: bool = True
) -> tuple[list[Recipe], Tables]:
    """The recipes to run as whole networks: the selected plans, and the unsplit model unless the user pinned layers.

    Args:
        tables: costs of layers.
        selector: selects plans.
        profiler: runs networks.
        whole: whether the unsplit model may be shipped.

    Raises:
        InfeasibleError: if no plan meets the pins and limits.
    """
    policy = selector.policy
    unsplit = [] if policy.pins or not whole else [unsplit_recipe(selector.imported, policy, tables.peak)]
    try:
        recipes, tables = selector.select(tables, policy.limits)
        if selector.by_call:
            regret, tables = regret_plans(selector, tables, policy.limits)
            recipes = [*regret, *(recipe for recipe in recipes if not any(map(recipe.is_same_as, regret)))]
        if not selector.solver.is_late:
            single, tables = single_precision_plans(selector, tables, recipes, policy.limits)
            home, tables = home_plans(selector, tables, recipes, policy.limits)
            recipes = [*recipes, *single, *home]
            overlapped, tables = overlapped_plans(selector, tables, recipes, policy.limits)
            recipes = [*recipes, *overlapped]
    except LimitError as error:
        if not profiler.counts_memory:
            raise
        _LOG.info("%s; what the smallest plan takes is measured", error)
        recipes, tables = selector.solver.smallest(tables)
    except InfeasibleError as error:
        if not unsplit:
            raise
        _LOG.warning("%s: only the unsplit model is left", error)
        recipes = []
    return [*recipes, *unsplit], tables


def refined(
    tables: Tables,
    refiner: Refiner,
    mending: Mending | None,
    floor: Recipe | None,
    *,
    whole: bool,
    leaves_out: bool,
) -> Refined:
    """The best network that ran.

    Args:
        tables: costs of layers.
        refiner: runs plans and selects again.
        mending: finds what is wrong in a plan that was predicted; None if plans are of what was measured.
        floor: a plan that ran before, which the others have to beat; None if there is none.
        whole: whether the unsplit model may be shipped.
        leaves_out: whether the unsplit model is not built where it is hopeless.
    """
    profiler, selector = refiner.profiler, refiner.selector
    recipes, chosen = choose(tables, selector, profiler, whole=whole)
    recipes = _apart(recipes, chosen, refiner, leaves_out)
    if not selector.policy.target.is_cpu and (end := lost_by_fusion(recipes, profiler)):
        _LOG.warning("the plan with fused layers ended as %s; one without them is selected", end)
        recipes, chosen = choose(without_fusions(tables, selector.imported.graph), selector, profiler, whole=whole)
        recipes = _apart(recipes, chosen, refiner, leaves_out)
    while mending is not None and (wrong := wrong_plan(recipes, profiler, selector.budget)) is not None:
        mended = mending(wrong, chosen)
        if mended is None:
            break
        recipes, chosen = choose(mended, selector, profiler, whole=whole)
        recipes = _apart(recipes, chosen, refiner, leaves_out)
    if floor is not None and not any(floor.is_same_as(recipe) for recipe in recipes):
        recipes = [*recipes, replace(floor, plan=timed_plan(floor, chosen))]
    return refiner.refine(chosen, recipes)


def _apart(recipes: list[Recipe], tables: Tables, refiner: Refiner, leaves_out: bool) -> list[Recipe]:
    """The recipes to run; ``refiner`` keeps those in reserve that seem too slow to run, and did not run before."""
    if not leaves_out:
        return recipes
    unknown = [recipe for recipe in recipes if refiner.profiler.run_of(recipe) is None]
    hopeless = partial(is_hopeless, recipes=recipes, tables=tables, is_bounded=refiner.budget.is_bounded)
    refiner.reserve = tuple(filter(hopeless, unknown))
    refiner.stock_estimate = sum(expected_seconds(recipe, tables) for recipe in refiner.reserve) or None
    return [recipe for recipe in recipes if recipe not in refiner.reserve]
