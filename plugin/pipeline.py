"""Compiles an ONNX file to a tuned .vmfb: one short function per step, in this order.

open_workspace          check that the compiler knows the target, start workers
import_network          load, prepare, import, fold weights, form layers      (in a worker)
calibrate               read the samples, find ranges if 8 bits are allowed
check_measure           try a measure of the user's own on outputs that are as expected
find_candidates         ask every routine about every task
tune                    compile and measure what is not stored, on each device; time transfers between them
measure_resource_costs  measure scratch memory and first reads, if they count
assess                  measure the outputs' error when layers are rounded, if that is allowed
choose                  solve for the best plans, of all types and of single ones, measuring the adapts they need
build                   compile the best plans, and the stock model, whole
profile                 check them against ONNX Runtime, time them
refine                  select again by times of layers in the network
publish                 check the best network's file beside ONNX Runtime; if it is wrong, take the next best
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_arbiters import LayerArbiters
from sartor.costing.layer_costs import joined_tables, make_tuner, tune, unmeasured
from sartor.costing.machines import Machines, machines_of
from sartor.costing.predicted_costs import predicted_tables
from sartor.costing.resource_costs import measure_resource_costs
from sartor.costing.time_budget import TimeBudget
from sartor.dialect_passes.annotate import Candidates
from sartor.errors import CompileError, DisturbedError, InfeasibleError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network, open_workspace
from sartor.frontend.target_check import check_measurable, runs_here
from sartor.frontend.value_ranges import with_children
from sartor.planning.contenders.one_device_plans import home_plans
from sartor.planning.contenders.overlapped_plans import overlapped_plans
from sartor.planning.contenders.single_type_plans import single_precision_plans
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.planning.recorded_recipe import check_plan, precision_of
from sartor.planning.rounding_assessment import assess
from sartor.precision.calibration import Calibration, calibrate
from sartor.precision.sensitivity import Sensitivities
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.profiling.builder import Builder
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.profiler import Profiler
from sartor.profiling.publisher import Publisher, publish_unchecked
from sartor.profiling.refiner import Refined, Refiner
from sartor.profiling.replay import replay
from sartor.profiling.verdicts import budget_of_model, refusal
from sartor.progress import Progress, silent
from sartor.publishing import check_apart
from sartor.samples.checked_samples import check_measure, checked_samples
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.selection.programming.infeasible import LimitError
from sartor.tuning.store.store import Store
from sartor.tuning.transfers.measured import measured_transfers
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)


def compile_model(model: Path, output: Path, config: CompileConfig, progress: Progress = silent) -> Artifact:
    """Tune a model and write the best module.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        config: settings.
        progress: told about every step.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    _check_files(model, output, config)
    with machines_of(config) as machines:
        return _compile_on(machines, model, output, machines.settings(config), progress)


def _compile_on(machines: Machines, model: Path, output: Path, config: CompileConfig, progress: Progress) -> Artifact:
    """Tune for the machines that measure."""
    time = TimeBudget.of(config.time_budget)
    with (
        open_workspace(config.target, config.jobs, machines.opening) as (pool, directory),
        Store.open(config.database, goes_on=True, hardware=machines.hardware) as store,
    ):
        imported = import_network(model, config.importing, pool, progress, directory)
        _check_files(model, output, config, imported.external)
        calibration = calibrate(imported, config.calibrating, pool, progress)
        check_measure(imported, calibration.samples, pool, config.error_budget)
        imported = replace(
            imported, ranges=with_children(imported.graph, {**calibration.ranges.values, **imported.ranges})
        )
        policy = config.planning
        candidates = find_candidates(imported, policy, config.dump_directory, everything=False)
        if not (machines.are_elsewhere or runs_here(config.target)):
            check_measurable(config.target)
            unrun = _Unrun(imported, candidates, calibration, store, pool, directory)
            return _compile_only(unrun, output, config, progress)
        budget = budget_of_model(config.error_budget, imported, calibration.samples)
        deadline, arbiters = time.tuning_deadline(imported), LayerArbiters(imported)
        tuner, *others = [
            make_tuner(store, pool, each, progress, directory, deadline, arbiters, budget.allowed_relative)
            for each in config.target.each
        ]
        found = [tune(imported, candidates, each, policy, config.search) for each in (tuner, *others)]
        tables = joined_tables(found, measured_transfers(store, pool, config.target))
        tables = measure_resource_costs(tables, store, pool, output.parent, config.target, policy.quantities)
        cache = SensitivityCache.beside(config.database)
        rounding = Sensitivities(imported, calibration, pool, budget.measure, config.threads, cache, progress)
        tables, plan_errors = assess(tables, rounding, budget, policy.precision)
        builder = Builder(imported, pool, directory, config.header, progress)
        runner = NetRunner(builder, calibration.samples, budget, is_hurried=time.is_bounded)
        profiler = Profiler(store, builder, runner, policy)
        solver = PlanSolver(imported, tuner, policy, progress, tuple(others), builder.planned_memory)
        selector = PlanSelector(solver, budget, plan_errors)
        guesses = unmeasured(tables, store) if time.is_spent and not config.pareto else 0
        refiner = Refiner(profiler, selector, time)
        refined = _refined(tables, selector, profiler, refiner, guesses)
        pareto = config.pareto and selector.pareto(refined.placed, policy.limits, config.pareto)
        refined, error = publish_best(refined, refiner, Publisher(builder, runner, output))
        shipped = _artifact(refined.plan, error, output, config)
        unchecked = calibration.samples.doubts.unchecked
        counted = replace(shipped, samples=runner.verified_count, unchecked=unchecked, others=pool.others)
        return replace(counted, pareto=pareto, rejections=candidates.rejections)


def _check_files(model: Path, output: Path, config: CompileConfig, external: tuple[Path, ...] = ()) -> None:
    """Check that outputs can be written and are not inputs; ``external`` are the model's files of external data."""
    outputs = {"the output": output}
    if config.external_weights is not None:
        outputs["the external weights"] = config.external_weights
    read = [("the model", model), *(("weights of the model", path) for path in external)]
    check_apart(outputs, [*read, *config.used_files(outputs.values())])


@dataclass(frozen=True)
class _Unrun:
    """What is known of a model that is compiled for a target which this machine cannot run."""

    imported: ImportedModel
    candidates: Candidates
    calibration: Calibration
    store: Store
    pool: WorkerPool
    directory: Path


def _compile_only(unrun: _Unrun, output: Path, config: CompileConfig, progress: Progress) -> Artifact:
    """Compile without measuring, for a target that this machine cannot run.

    For a CPU the plan is the best by predicted costs, or by those that another machine measured. On a GPU layers get
    stock code, within their pins.
    """
    policy, imported, pool = config.planning, unrun.imported, unrun.pool
    if config.target.device == "cpu":
        recipe = _predicted_recipe(unrun, output, config, progress)
    elif policy.pins:
        recipe = guessed_recipe(imported, unrun.candidates.variants, policy)
    else:
        recipe = unsplit_recipe(imported, policy)
    basis = f"; times are {recipe.plan.basis}" if recipe.plan.basis else ""
    _LOG.warning("this machine does not run %s code: compiled, but neither tuned nor checked%s", config.target, basis)
    publish_unchecked(recipe, Builder(imported, pool, unrun.directory, config.header, progress), output)
    return _artifact(recipe.plan, None, output, config)


def _predicted_recipe(unrun: _Unrun, output: Path, config: CompileConfig, progress: Progress) -> Recipe:
    """The best plan by predicted costs; the errors of narrower types are simulated as for any other target.

    Raises:
        InfeasibleError: if no plan meets the pins and limits.
    """
    imported, policy, pool, calibration = unrun.imported, config.planning, unrun.pool, unrun.calibration
    budget = budget_of_model(config.error_budget, imported, calibration.samples)
    tuner = make_tuner(unrun.store, pool, config.target, progress)
    tables, costs = predicted_tables(imported, unrun.candidates, tuner, policy)
    tables = measure_resource_costs(tables, unrun.store, pool, output.parent, config.target, policy.quantities)
    cache = SensitivityCache.beside(config.database)
    rounding = Sensitivities(imported, calibration, pool, budget.measure, config.threads, cache, progress)
    tables, plan_errors = assess(tables, rounding, budget, policy.precision)
    selector = PlanSelector(PlanSolver(imported, costs, policy, progress), budget, plan_errors)
    try:
        return selector.select(tables, policy.limits)[0][0]
    except InfeasibleError as error:
        if policy.pins or policy.limits != UNLIMITED:
            raise
        _LOG.warning("%s: only the unsplit model is left", error)
        return unsplit_recipe(imported, policy)


def replay_plan(model: Path, plan: Plan, output: Path, config: CompileConfig, progress: Progress = silent) -> Artifact:
    """Build a module from a plan, without measuring: the same model and plan give the same bytes.

    The element types of the plan's layers determine the default bound on the error.

    Raises:
        UsageError: if the plan was made for another model, target or version.
        CompileError: if the module's outputs are wrong.
        LimitError: if they exceed the user's error bound.
    """
    _check_files(model, output, config)
    check_plan(plan, config.target, config.bindings)
    config = replace(config, threads=plan.threads, precision=precision_of(plan))
    importing = replace(config.importing, named=tuple(each.layer for each in plan.layers))
    with open_workspace(config.target, config.jobs) as (pool, directory):
        imported = import_network(model, importing, pool, progress, directory)
        _check_files(model, output, config, imported.external)
        replayed = replay(plan, imported, config.planning, config.dump_directory)
        imported, recipe = replayed.imported, replayed.recipe
        budget = config.error_budget
        samples = checked_samples(imported, config.calibration, pool, narrow=budget.narrow)
        check_measure(imported, samples, pool, budget)
        builder = Builder(imported, pool, directory, config.header, progress)
        if not runs_here(config.target):
            _LOG.warning("this machine does not run %s code: compiled, but not checked", config.target)
            publish_unchecked(recipe, builder, output)
            return _artifact(plan, None, output, config)
        runner = NetRunner(builder, samples, budget_of_model(budget, imported, samples))
        run = Publisher(builder, runner, output).publish(recipe)
        if run.status is not Status.OK:
            raise refusal([run], runner.budget)
        shipped = _artifact(plan, run.error, output, config)
        unchecked = samples.doubts.unchecked
        return replace(
            shipped, samples=runner.verified_count, unchecked=unchecked, rejections=replayed.candidates.rejections
        )


def _refined(tables: Tables, selector: PlanSelector, profiler: Profiler, refiner: Refiner, guesses: int) -> Refined:
    """The best network that ran; if there was no time for plans and stock IREE refuses the model, one by guesses.

    IREE refuses some models whole that it compiles in layers, and the user waited for a module.
    """
    recipes, chosen = choose(tables, selector, profiler, guesses)
    try:
        return refiner.refine(chosen, recipes)
    except DisturbedError:
        raise
    except CompileError as error:
        if not guesses or len(recipes) > 1:
            raise
        _LOG.warning("%s; a plan of guesses is selected, and not in time", str(error).partition("\n")[0])
        recipes, chosen = choose(tables, selector, profiler)
        return refiner.refine(chosen, recipes)


def choose(tables: Tables, selector: PlanSelector, profiler: Profiler, guesses: int = 0) -> tuple[list[Recipe], Tables]:
    """The recipes to run as whole networks: the selected plans, and the unsplit model unless the user pinned layers.

    Args:
        tables: costs of layers.
        selector: selects plans.
        profiler: runs networks.
        guesses: number of kinds of layers that are not measured, if the time budget is spent: selecting and building a
            plan of guesses would take as long as import did. Only the unsplit model is left, if it may be shipped.

    Raises:
        InfeasibleError: if no plan meets the pins and limits.
    """
    policy = selector.policy
    unsplit = [] if policy.pins else [unsplit_recipe(selector.imported, policy, tables.peak)]
    if guesses and unsplit and policy.limits == UNLIMITED:
        message = (
            "the time budget is spent, and %d of %d kinds of layers were not measured: no plan is selected, and the "
        )
        _LOG.warning(message + "model is built by stock IREE alone", guesses, len(tables.variants))
        return unsplit, tables
    try:
        recipes, tables = selector.select(tables, policy.limits)
        if not selector.solver.is_late:
            single, tables = single_precision_plans(selector, tables, recipes, policy.limits)
            home, tables = home_plans(selector, tables, recipes, policy.limits)
            recipes = [*recipes, *single, *home]
            recipes += overlapped_plans(selector, tables, recipes, policy.limits)
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


def publish_best(refined: Refined, refiner: Refiner, publisher: Publisher) -> tuple[Refined, float | None]:
    """Publish the best network whose file passes the check; returns it with the error of its outputs.

    A file that fails replaces the stored run of its recipe, and the next best network is built.

    Raises:
        CompileError: if no network is right.
        LimitError: if the right ones take too much memory, or none keeps the user's error bound.
    """
    while True:
        run = publisher.publish(refined.recipe)
        if run.status is Status.OK:
            return refined, run.error
        _LOG.warning("the best plan is not what it was measured as (%s); the next best is built", run.message)
        refiner.profiler.contradict(refined.recipe, run)
        refined = refiner.next_best(refined)


def _artifact(plan: Plan, error: float | None, output: Path, config: CompileConfig) -> Artifact:
    size = output.stat().st_size
    return Artifact(output, plan, error, size, config.external_weights, measure=config.error_measure)
