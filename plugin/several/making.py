"""Makes the plans of a file, each as for a file of its own: tuned and checked, predicted, or read from a saved plan."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sartor.config import CompileConfig
from sartor.errors import CompileError
from sartor.frontend.kept_import import forgotten_if_wrong
from sartor.frontend.loading import import_network
from sartor.frontend.target_check import runs_here
from sartor.planning.guessed_recipe import check_predictable, guessed_recipe
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.planning.recorded_recipe import blocks_of, check_plan, precision_of
from sartor.precision.compensation.compensated_weights import compensated_as
from sartor.profiling.builder import Builder
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy, find_variants
from sartor.profiling.compilation.made_plan import Made, PlanTask
from sartor.profiling.compilation.outputs import check_files, publish_best
from sartor.profiling.compilation.plan_choice import predicted_recipe
from sartor.profiling.compilation.tuned_network import Tuned, tune_network
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.refinement import Refined
from sartor.profiling.replay import replay
from sartor.profiling.verdicts import budget_of_model, refusal
from sartor.samples.checked_samples import check_measure, checked_samples
from sartor.samples.sample_sets import check_shapes
from sartor.several.settings import Shapes, shapes_text
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.cost import Objective

_LOG = logging.getLogger(__name__)


def made_plan(task: PlanTask, saved: Plan | None, shapes: Sequence[Shapes]) -> Made:
    """The plan for the shapes of its settings; ``shapes`` are those of all plans of the file."""
    return tuned_plan(task, shapes) if saved is None else replayed_plan(task, saved)


def tuned_plan(task: PlanTask, shapes: Sequence[Shapes] = ()) -> Made:
    """Tune one plan, or predict it if no machine at hand runs its target.

    Args:
        task: what it is made of.
        shapes: those of all plans of the file, which the samples have to fit.
    """
    config, bench, output = task.config, task.bench, task.output
    is_measured = task.elsewhere or runs_here(config.target)
    if not is_measured:
        check_predictable(config.planning)
    importing = config.importing
    imported = import_network(task.model, importing, bench.pool, bench.progress, bench.directory, bench.time.end)
    bench.imported.append(imported)
    check_files(task.model, output, config, task.others, imported.external)
    if config.calibration is not None:
        check_shapes(imported, config.calibration, shapes)
    with forgotten_if_wrong(bench.imported, KeptValues.of_imports()):
        candidacy = find_variants(imported, config, bench)
    rejections = candidacy.candidates.rejections
    if not is_measured:
        recipe = _predicted(candidacy, config, bench, output)
        return Made(config.target, config.shapes, candidacy.imported, recipe, recipe.plan, rejections=rejections)
    with forgotten_if_wrong(bench.imported, KeptValues.of_imports()):
        tuned = tune_network(candidacy, config, bench, output.parent, whole=False)
        builder, runner = tuned.builder, tuned.runner
        refined, run = publish_best(tuned.refined, tuned.refiner, lambda recipe: _checked(recipe, builder, runner))
    plan = _beside_stock(refined, tuned, candidacy, config, bench)
    return Made(
        config.target, config.shapes, candidacy.imported, refined.recipe, plan, run, runner, rejections=rejections
    )


def replayed_plan(task: PlanTask, plan: Plan) -> Made:
    """A saved plan with its code, which is not measured.

    Raises:
        UsageError: if the plan was made for another model, target or version.
        CompileError: if its outputs are wrong.
        LimitError: if they exceed the user's error bound.
    """
    config, bench = task.config, task.bench
    check_plan(plan, config.target, config.fixed)
    config = config.for_plan(plan.threads, precision_of(plan))
    importing = replace(config.importing, named=tuple(layer.layer for layer in plan.layers), exponents=plan.exponents)
    imported = import_network(task.model, importing, bench.pool, bench.progress, bench.directory)
    check_files(task.model, task.output, config, task.others, imported.external)
    recipe = replay(plan, imported, config.planning, config.dump_directory)
    budget = config.error_budget
    samples = checked_samples(recipe.imported, config.calibration, bench.pool, narrow=budget.narrow)
    check_measure(recipe.imported, samples, bench.pool, budget)
    rounding = replace(config.calibrating, blocks=blocks_of(plan))
    imported = compensated_as(plan, recipe.imported, samples, rounding, bench.pool, bench.progress)
    made = Made(config.target, config.shapes, imported, recipe.recipe, plan, rejections=recipe.candidates.rejections)
    if not runs_here(config.target):
        _LOG.warning("this machine does not run %s code: its plan is not checked", config.target)
        return made
    builder = Builder(imported, bench.pool, bench.directory, config.header, bench.progress)
    runner = NetRunner(builder, samples, budget_of_model(budget, imported, samples))
    run = _checked(recipe.recipe, builder, runner)
    with forgotten_if_wrong([imported], KeptValues.of_imports()):
        if run.status is not Status.OK:
            raise refusal([run], runner.budget)
    return replace(made, run=run, runner=runner)


def _predicted(candidacy: Candidacy, config: CompileConfig, bench: Bench, output: Path) -> Recipe:
    """The best plan by predicted costs; stock code, within the pins, on a GPU that there is no model of."""
    if config.target.has_models:
        recipe = predicted_recipe(candidacy, config, bench, output.parent, whole=False)
    else:
        recipe = guessed_recipe(candidacy.imported, candidacy.candidates.variants, config.planning)
    basis = f"; times are {recipe.plan.basis}" if recipe.plan.basis else ""
    _LOG.warning("this machine does not run %s code: its plan is neither tuned nor checked%s", config.target, basis)
    return recipe


def _checked(recipe: Recipe, builder: Builder, runner: NetRunner) -> NetRun:
    """The judged run of a plan in a module of its own, beside ONNX Runtime."""
    try:
        (build,) = builder.build([recipe])
    except CompileError as error:
        return NetRun(Status.COMPILE_FAILED, message=str(error))
    return runner.judged_and_kept(build)


def _beside_stock(refined: Refined, tuned: Tuned, candidacy: Candidacy, config: CompileConfig, bench: Bench) -> Plan:
    """The plan with the time of the whole model by stock IREE, which such a file cannot have among its plans.

    A plan that is slower is reported: a file of its own would have the whole model in its place.
    """
    plan, recipe, profiler = refined.plan, refined.profiled.recipe, tuned.refiner.profiler
    if config.pins or bench.time.is_spent:
        return plan
    stock = unsplit_recipe(candidacy.imported, config.planning, plan.peak)
    profiler.run((recipe, stock))
    own, whole = profiler.run_of(recipe), profiler.run_of(stock)
    if own is None or whole is None or whole.status is not Status.OK:
        return plan
    # By another objective, or within a limit, a file of its own may not have it either.
    if whole.time < own.time and config.objective is Objective.LATENCY and config.memory_limit is None:
        _LOG.warning(
            "IREE's stock module of the whole model is faster than the plan for %s with %s: %.3f against %.3f ms; a "
            "file with several plans cannot contain it, a file for this target and these shapes alone does",
            config.target,
            shapes_text(config.shapes),
            whole.time * 1e3,
            own.time * 1e3,
        )
    return replace(plan, measured=own.time if plan.workers is None else plan.measured, baseline=whole.time)
