"""Compiles an ONNX file to a tuned .vmfb: its steps, in order. Indented ones are in ``profiling/compilation``.

open_workspace              check that the compiler knows the target, start workers
import_network              load, prepare, import, fold weights, form layers      (in a worker); meanwhile ask the
                            compiler about the CPU, digest the sources that stored results depend on, and load what
                            a search needs
find_variants
    check_rewrites          compare them with definitions of operators, where these replace ONNX Runtime's kernels
    calibrate               read the samples, find ranges if 8 bits are allowed
    check_measure           try a measure of the user's own on outputs that are as expected
    begin                   start the reference and the stock model on another processor, beside all until measuring
    find_candidates         ask every routine about every task, and drop what may not run or cannot win, with reasons;
                            meanwhile compare the layers of a rewritten model that rounds with what the nodes give
tune_with_best_threads       of a small network, run predicted plans for all threads and for one
tune_network
    tune                    compile and measure what is not stored, on each device; time transfers between them
    measure_resource_costs  measure scratch memory and first reads, if they count
    measure_starts          measure first executions, if the first inference counts
    assess                  measure the outputs' error when layers are rounded, if that is allowed
    choose                  solve for the best plans, of all types and of single ones, measuring the adapts they need
    build                   compile the best plans, and the stock model, whole
    profile                 check them against ONNX Runtime, time them
    refine                  select again by times of layers in the network
publish_best                check the best network's file beside ONNX Runtime; if it is wrong, take the next best
publish_together            give the file, and what the caller adds to the publication, their names, at its very end

For a target that does not run here the plan is predicted after ``find_variants``, and its file is not checked. A file
with several plans goes the same way for each of them (``several/compilation.py``).
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.costing.layer_costs import load_search
from sartor.costing.machines import Machines, machines_of
from sartor.costing.time_budget import TimeBudget
from sartor.errors import UsageError
from sartor.frontend.kept_import import forgotten_if_wrong
from sartor.frontend.loading import import_network, open_workspace
from sartor.frontend.target_check import check_measurable, runs_here
from sartor.planning.guessed_recipe import check_predictable, guessed_recipe
from sartor.planning.recipe import unsplit_recipe
from sartor.planning.recorded_recipe import blocks_of, check_plan, precision_of
from sartor.precision.compensation.compensated_weights import compensated_as
from sartor.precision.permitted_rounding import heeding_permissions
from sartor.profiling.builder import Builder
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy, find_variants
from sartor.profiling.compilation.fewer_threads import tune_with_best_threads
from sartor.profiling.compilation.outputs import check_files, publish_best
from sartor.profiling.compilation.plan_choice import predicted_recipe
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.publisher import Publisher, stage_unchecked
from sartor.profiling.replay import replay
from sartor.profiling.verdicts import budget_of_model, refusal
from sartor.progress import Progress, silent
from sartor.publishing import Publication, part_of
from sartor.reference.subnormal_values import explaining_wrong_outputs
from sartor.samples.checked_samples import check_measure, checked_samples
from sartor.samples.rewritten_samples import check_rewrites
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.store.store import Store
from sartor.tuning.workers.beside.stopping import NEVER, stoppable

_LOG = logging.getLogger(__name__)


def compile_model(
    model: Path, output: Path, config: CompileConfig, progress: Progress = silent, whole: Publication | None = None
) -> Artifact:
    """Tune a model and write the best module.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        config: settings.
        progress: told about every step.
        whole: what the module is published with; by default it is published alone.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    with part_of(whole) as publication, machines_of(config) as machines:
        check_files(model, output, config, publication.others)
        return _compile_on(machines, model, output, machines.settings(config), progress, publication)


def _compile_on(
    machines: Machines,
    model: Path,
    output: Path,
    config: CompileConfig,
    progress: Progress,
    publication: Publication,
) -> Artifact:
    """Tune for the machines that measure."""
    time = TimeBudget.of(config.time_budget)
    with (
        open_workspace(config.target, config.jobs, machines.opening, time.patience) as (pool, directory),
        Store.open(config.database, goes_on=True, hardware=machines.hardware) as store,
    ):
        bench = Bench(pool, directory, store, time, progress)
        # Asked of targets that the compiler knows alone, as LLVM ends a process that asks about others.
        is_here = runs_here(config.target)
        if not (machines.are_elsewhere or is_here):
            check_predictable(config.planning, wants_front=bool(config.pareto))
        measures = time.seconds > 0
        load_search(
            store, config.target, config.search, predicts=time.is_bounded, measures=measures, until=config.until
        )
        imported = import_network(model, config.importing, pool, progress, directory, time.end)
        bench.imported.append(imported)
        config = heeding_permissions(config, imported)
        if config.objective is Objective.REGRET:
            raise UsageError(
                "--objective regret is about calls with several sizes, and all sizes of this model are fixed; leave it "
                "out"
            )
        check_files(model, output, config, publication.others, imported.external)
        with forgotten_if_wrong(bench.imported, KeptValues.of_imports()):
            candidacy = find_variants(imported, config, bench, is_tuned_here=not machines.are_elsewhere and is_here)
        explaining = explaining_wrong_outputs(pool, model, imported.prepared, imported.samples)
        if not (machines.are_elsewhere or is_here):
            check_measurable(config.target)
            return _compile_only(candidacy, bench, output, config, publication)
        stopping = nullcontext(NEVER) if machines.are_elsewhere else stoppable()
        with explaining, forgotten_if_wrong(bench.imported, KeptValues.of_imports()), stopping as stop:
            bench = replace(bench, time=replace(time, stop=stop))
            tuned = tune_with_best_threads(candidacy, config, bench, output.parent)
            refined, run = publish_best(
                tuned.refined, tuned.refiner, Publisher(tuned.builder, tuned.runner, output, publication).publish
            )
        shipped = _artifact(refined.plan, run, output, config, publication)
        checked = _checked(shipped, tuned.runner, tuned.samples)
        return replace(checked, others=pool.others, pareto=tuned.pareto, rejections=candidacy.candidates.rejections)


def _compile_only(
    candidacy: Candidacy, bench: Bench, output: Path, config: CompileConfig, publication: Publication
) -> Artifact:
    """Compile without measuring, for a target that this machine cannot run.

    For a CPU, or a GPU that there are kernels for, the plan is the best by predicted costs, or by those that another
    machine measured. On other GPUs layers get stock code, within their pins.
    """
    policy, imported = config.planning, candidacy.imported
    if config.target.has_models:
        recipe = predicted_recipe(candidacy, config, bench, output.parent)
    elif policy.pins:
        recipe = guessed_recipe(imported, candidacy.candidates.variants, policy)
    else:
        recipe = unsplit_recipe(imported, policy)
    basis = f"; times are {recipe.plan.basis}" if recipe.plan.basis else ""
    _LOG.warning("this machine does not run %s code: compiled, but neither tuned nor checked%s", config.target, basis)
    builder = Builder(imported, bench.pool, bench.directory, config.header, bench.progress)
    stage_unchecked(recipe, builder, output, publication)
    return _artifact(recipe.plan, None, output, config, publication)


def replay_plan(
    model: Path,
    plan: Plan,
    output: Path,
    config: CompileConfig,
    progress: Progress = silent,
    whole: Publication | None = None,
) -> Artifact:
    """Build a module from a plan, without measuring: the same model and plan give the same bytes.

    The element types of the plan's layers determine the default bound on the error. The module is published with what
    ``whole`` has, or alone.

    Raises:
        UsageError: if the plan was made for another model, target or version.
        CompileError: if the module's outputs are wrong.
        LimitError: if they exceed the user's error bound.
    """
    with part_of(whole) as publication:
        check_files(model, output, config, publication.others)
        check_plan(plan, config.target, config.fixed)
        fitting = config.for_plan(plan.threads, precision_of(plan))
        return _replay(model, plan, output, fitting, progress, publication)


def _replay(
    model: Path, plan: Plan, output: Path, config: CompileConfig, progress: Progress, publication: Publication
) -> Artifact:
    importing = replace(config.importing, named=tuple(layer.layer for layer in plan.layers), exponents=plan.exponents)
    with open_workspace(config.target, config.jobs) as (pool, directory):
        imported = import_network(model, importing, pool, progress, directory)
        check_files(model, output, config, publication.others, imported.external)
        replayed = replay(plan, imported, config.planning, config.dump_directory)
        imported, recipe = replayed.imported, replayed.recipe
        budget = config.error_budget
        with forgotten_if_wrong([imported], KeptValues.of_imports()):
            check_rewrites(pool, imported, config.calibration)
        samples = checked_samples(imported, config.calibration, pool, narrow=budget.narrow)
        check_measure(imported, samples, pool, budget)
        rounding = replace(config.calibrating, blocks=blocks_of(plan))
        imported = compensated_as(plan, imported, samples, rounding, pool, progress)
        kept, code, imports = KeptModules.of_user(), KeptCode.of_user(), KeptValues.of_imports()
        builder = Builder(imported, pool, directory, config.header, progress, kept, code, imports)
        if not runs_here(config.target):
            _LOG.warning("this machine does not run %s code: compiled, but not checked", config.target)
            stage_unchecked(recipe, builder, output, publication)
            return _artifact(plan, None, output, config, publication)
        runner = NetRunner(builder, samples, budget_of_model(budget, imported, samples))
        run = Publisher(builder, runner, output, publication).publish(recipe)
        if run.status is not Status.OK:
            explaining = explaining_wrong_outputs(pool, model, imported.prepared, imported.samples)
            with explaining, forgotten_if_wrong([imported], imports):
                raise refusal([run], runner.budget)
        shipped = _artifact(plan, run, output, config, publication)
        return replace(_checked(shipped, runner, samples), rejections=replayed.candidates.rejections)


def _artifact(
    plan: Plan, run: NetRun | None, output: Path, config: CompileConfig, publication: Publication
) -> Artifact:
    size = publication.place_of(output).stat().st_size
    error, layers = (None, "") if run is None else (run.error, run.layers)
    return Artifact(output, plan, error, size, config.external_weights, measure=config.error_measure, layers=layers)


def _checked(artifact: Artifact, runner: NetRunner, samples: SampleSet) -> Artifact:
    """The artifact with what its error was measured on and judged by."""
    unchecked, allowed = samples.doubts.unchecked, runner.budget.accepted
    vouched = replace(artifact, reference=runner.reference, unvouched=runner.unvouched)
    return replace(vouched, samples=runner.verified_count, unchecked=unchecked, allowed=allowed)
