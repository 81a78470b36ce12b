"""A network for which plans were selected and run: what one compilation does between the import and the file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic

from sartor.artifact import ParetoFront
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_arbiters import LayerArbiters
from sartor.costing.layer_costs import foreseen, joined_tables, make_tuner, tune
from sartor.costing.listing import all_of
from sartor.costing.predicted_costs import TimelyConversions, predicted_tables
from sartor.costing.resource_costs import measure_resource_costs, measure_starts
from sartor.costing.time_budget import TimeBudget
from sartor.errors import InfeasibleError, LateError, SartorError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.frontend.value_ranges import with_children
from sartor.planning.contenders.one_device_plans import home_plans
from sartor.planning.contenders.overlapped_plans import overlapped_plans
from sartor.planning.contenders.single_type_plans import single_precision_plans
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe, timed_plan, unsplit_recipe
from sartor.planning.rounding_assessment import assess
from sartor.precision.calibration import Calibration, calibrate
from sartor.precision.compensation.compensated_weights import with_compensation
from sartor.precision.equalisation import find_exponents
from sartor.precision.permitted_rounding import with_permitted_error
from sartor.precision.sensitivity import Sensitivities
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.profiling.builder import Builder
from sartor.profiling.compilation.floor import Mending, has_floor, without_wrong, wrong_plan
from sartor.profiling.compilation.lost_fusions import lost_by_fusion, without_fusions
from sartor.profiling.compilation.stock_floor import expected_seconds, is_hopeless, may_leave_out
from sartor.profiling.layerwise.rewritten_layers import checking_layers
from sartor.profiling.network_records import NetworkRecords
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.profiler import Profiler
from sartor.profiling.refiner import Refined, Refiner
from sartor.profiling.verdicts import budget_of_model
from sartor.progress import Progress
from sartor.reference.trusted.loaded_models import MOST_BYTES
from sartor.samples.checked_samples import check_measure
from sartor.samples.rewritten_samples import RewriteCheck
from sartor.samples.sample_sets import SampleSet, sample_set
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.doubts import Doubts
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.selection.programming.infeasible import LimitError
from sartor.tuning.store.store import Store
from sartor.tuning.transfers.measured import measured_transfers
from sartor.tuning.workers.beside.stopping import Stopped
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.sharing import machine_turns

_LOG = logging.getLogger(__name__)
# What follows tuning takes this multiple of the time that the predicted plan took.
_AGAIN = 1.3
# Of that this fraction is for running and checking.
_CHECKING = 0.3
# Seconds below which tuning finds little.
_ENOUGH = 2.0
# One of so many parts of the time that is left may go into compensating errors of weights.
_COMPENSATING = 2


@dataclass(frozen=True)
class Bench:
    """What plans are made with.

    Attributes:
        pool: workers.
        directory: for temporary files.
        store: the tuning database.
        time: the time budget.
        progress: told about every step.
    """

    pool: WorkerPool
    directory: Path
    store: Store
    time: TimeBudget
    progress: Progress


@dataclass(frozen=True)
class Candidacy:
    """A model as layers, with what plans are selected from.

    Attributes:
        imported: the model.
        calibration: its samples and ranges.
        candidates: the variants of each layer.
        checking: the comparison of its rewrites with definitions of operators, which may go on.
        begun: what builds and runs its networks, and has begun already; None if nothing has.
    """

    imported: ImportedModel
    calibration: Calibration
    candidates: Candidates
    checking: RewriteCheck
    begun: NetRunner | None = None


@dataclass(frozen=True)
class Tuned:
    """A network for which plans were selected and run.

    Attributes:
        refined: the best plan.
        refiner: has the other plans.
        builder: compiles them.
        runner: runs them beside ONNX Runtime.
        samples: inputs.
        pareto: the front, if one was asked for.
    """

    refined: Refined
    refiner: Refiner
    builder: Builder
    runner: NetRunner
    samples: SampleSet
    pareto: ParetoFront | None = None


def find_variants(
    imported: ImportedModel,
    config: CompileConfig,
    bench: Bench,
    *,
    is_tuned_here: bool = False,
    rewritten: ImportedModel | None = None,
) -> Candidacy:
    """Calibrate a model, and ask every routine about every layer.

    Args:
        imported: the model.
        config: settings.
        bench: what plans are made with.
        is_tuned_here: whether its networks will run on this machine, so that what they need can begin.
        rewritten: the same model with smaller sizes, on which its rewrites are compared with definitions; None for
            itself.

    Raises:
        UsageError: if the user's samples or measure fail.
        RewriteError: if a rewrite computes something else than the operator's definition.
    """
    is_hurried = has_floor(config, bench.time)
    checking = RewriteCheck(bench.pool, rewritten or imported, config.calibrating.samples)
    if is_hurried and is_tuned_here and not _fills_memory(imported):
        # A plan that is predicted is built meanwhile: nothing is measured that a wrong rewrite would waste.
        checking.begin()
    else:
        checking.finish()
    imported = equalised(imported, config, bench)
    calibration = calibrate(imported, config.calibrating, bench.pool, bench.progress)
    calibration = with_permitted_error(
        imported, calibration, config, bench.pool, bench.progress, is_hurried=bench.time.is_bounded
    )
    check_measure(imported, calibration.samples, bench.pool, config.error_budget)
    imported, calibration = with_compensation(
        imported, calibration, config.calibrating, bench.pool, bench.progress, bench.time.part(_COMPENSATING).end
    )
    imported = replace(imported, ranges=with_children(imported.graph, {**calibration.ranges.values, **imported.ranges}))
    begun = _begun(imported, calibration.samples, config, bench) if is_tuned_here else None
    narrow = foreseen(bench.store, config.target) if is_hurried and not config.planning.pins else all_of
    with _checking_rewrites(imported, calibration.samples, config, bench) if is_tuned_here else nullcontext():
        candidates = find_candidates(imported, config.planning, config.dump_directory, everything=False, narrow=narrow)
    return Candidacy(imported, calibration, candidates, checking, begun)


def _fills_memory(imported: ImportedModel) -> bool:
    """Whether a model's weights are so many that ONNX Runtime should not load them in two processes at a time."""
    return isinstance(imported.prepared, Path) and imported.prepared.stat().st_size > MOST_BYTES


def _checking_rewrites(
    imported: ImportedModel, samples: SampleSet, config: CompileConfig, bench: Bench
) -> AbstractContextManager[None]:
    """Compare the layers of the rewritten model on the first sample, on another processor, where outputs hide errors.

    Raises:
        RewriteError: at its end, if they are wrong.
    """
    budget = budget_of_model(config.error_budget, imported, samples)
    hides = budget.asks_layers and budget.rounds
    return checking_layers(bench.pool, imported, [samples.first]) if hides else nullcontext()


def _begun(imported: ImportedModel, samples: SampleSet, config: CompileConfig, bench: Bench) -> NetRunner | None:
    """Begin, on another processor, what does not depend on variants: the reference outputs, and the stock model if it
    never ran.

    The stock model does not begin where it may prove hopeless, and within a time budget, of which it takes much.
    """
    if config.target.device != "cpu" or config.target.others:
        return None
    runner = _runner(imported, samples, config, bench)
    runner.begin_ahead()
    stock = unsplit_recipe(imported, config.planning)
    records = NetworkRecords(bench.store, imported, config.target, runner, Doubts(bench.pool.is_quiet))
    waits = bench.time.is_bounded or may_leave_out(config.planning, config.search)
    if not (waits or config.planning.pins) and records.run_of(stock) is None:
        runner.builder.begin(stock)
    return runner


def _runner(imported: ImportedModel, samples: SampleSet, config: CompileConfig, bench: Bench) -> NetRunner:
    """Builds networks, and runs them."""
    budget = budget_of_model(config.error_budget, imported, samples)
    kept, code = KeptModules.of_user(), KeptCode.of_user()
    builder = Builder(imported, bench.pool, bench.directory, config.header, bench.progress, kept, code)
    return NetRunner(builder, samples, budget, is_hurried=bench.time.is_bounded)


def equalised(imported: ImportedModel, config: CompileConfig, bench: Bench) -> ImportedModel:
    """The model, imported anew with channels equalised before products where 8 bits need that.

    In f32 it computes the same bits. Random samples tell nothing about sizes of channels, so the user's are needed.

    Raises:
        UsageError: if the samples do not fit the model, or cannot be read.
    """
    policy = config.calibrating
    if policy.samples is None or not policy.precision.quantises_values:
        return imported
    samples = sample_set(imported, policy.samples, narrow=True)
    exponents = find_exponents(imported, samples.source, bench.pool, config.threads, bench.progress)
    if not exponents:
        return imported
    importing = replace(config.importing, exponents=exponents)
    return import_network(imported.path, importing, bench.pool, bench.progress, bench.directory)


def tune_network(found: Candidacy, config: CompileConfig, bench: Bench, folder: Path, *, whole: bool = True) -> Tuned:
    """Measure the variants of a model's layers, select plans and run them.

    Within a time budget the plan that is predicted runs first. It is what ships if there is no time for a better one.

    Args:
        found: the model and its variants.
        config: settings.
        bench: what plans are made with.
        folder: on whose disk cold reads are measured.
        whole: whether the model that IREE compiles whole may be shipped.

    Raises:
        RewriteError: if a rewrite computes something else than the operator's definition.
    """
    if not has_floor(config, bench.time):
        found.checking.finish()
        return _tuned(found, config, bench, folder, whole=whole)
    begin = monotonic()
    runner = found.begun or _runner(found.imported, found.calibration.samples, config, bench)
    found = replace(found, begun=runner)
    try:
        floor = _tuned(found, config, replace(bench, time=bench.time.spent()), folder, whole=whole, predicts=True)
    except SartorError:
        # If no plan is right since a rewrite is wrong, that is what is told.
        found.checking.finish()
        raise
    found.checking.finish()
    finishing = _AGAIN * (monotonic() - begin)
    if not bench.time.leaves(_ENOUGH + finishing):
        if bench.time.seconds:
            _LOG.warning(
                "the time budget leaves no time to measure layers: what the database does not know are guesses"
            )
        return floor
    time = bench.time.until_finished(finishing)
    found = replace(found, candidates=find_candidates(found.imported, config.planning, everything=False))
    with runner.builder.until(time.end - _CHECKING * finishing):
        first = floor.refined.profiled.recipe
        try:
            return _tuned(found, config, replace(bench, time=time), folder, whole=whole, floor=first)
        except LateError:
            _LOG.warning("the time budget left no time to build the plan that tuning found: the predicted one ships")
            return floor


def _tuned(
    found: Candidacy,
    config: CompileConfig,
    bench: Bench,
    folder: Path,
    *,
    whole: bool,
    floor: Recipe | None = None,
    predicts: bool = False,
) -> Tuned:
    """As ``tune_network``; ``floor`` is a plan that ran, and is shipped unless a better one runs. Nothing is to be
    measured where the plan ``predicts`` what is not known."""
    pool, store, time, progress, policy = bench.pool, bench.store, bench.time, bench.progress, config.planning
    imported, calibration = found.imported, found.calibration
    runner = found.begun or _runner(imported, calibration.samples, config, bench)
    builder, budget = runner.builder, runner.budget
    made = _tuners(imported, config, bench, budget.allowed_relative)
    tuned = partial(
        tune,
        imported,
        found.candidates,
        policy=policy,
        search=config.search,
        until=config.tune_until,
        predicts=predicts,
    )
    try:
        with time.stop.interruptible(), _patience(time, imported):
            tuner, *others = made(time.tuning_deadline(imported))
            measured = [tuned(each) for each in (tuner, *others)]
    except Stopped:
        # The rest is as when a time budget is spent.
        time = time.spent()
        tuner, *others = made(time.end)
        measured = [tuned(each) for each in (tuner, *others)]
    tables = joined_tables(measured, measured_transfers(store, pool, config.target))
    tables = measure_resource_costs(tables, store, pool, folder, config.target, policy.quantities)
    tables = measure_starts(tables, imported, tuner, pool, policy.quantities)
    cache = SensitivityCache.beside(config.database)
    rounding = Sensitivities(
        imported, calibration, pool, budget.measure, config.jobs, cache, progress, is_hurried=tuner.is_late
    )
    tables, plan_errors = assess(tables, rounding, budget, policy.precision)
    profiler = Profiler(store, builder, runner, policy, is_hurried=time.is_bounded)
    timely = TimelyConversions(tuner, core_of(tuner.target)) if tuner.target.has_models else tuner
    solver = PlanSolver(imported, timely, policy, progress, tuple(others), builder.planned_memory)
    selector = PlanSelector(solver, budget, plan_errors)
    refiner = Refiner(profiler, selector, time)
    leaves_out = may_leave_out(policy, config.search, is_bounded=time.is_bounded)
    mending = partial(without_wrong, tuner=made(None)[0]) if time.is_bounded and floor is None and not others else None
    refined = _refined(tables, refiner, mending, floor, whole=whole, leaves_out=leaves_out)
    pareto = config.pareto and selector.pareto(refined.placed, policy.limits, config.pareto)
    return Tuned(refined, refiner, builder, runner, calibration.samples, pareto or None)


def _patience(time: TimeBudget, imported: ImportedModel) -> AbstractContextManager[None]:
    """While variants are measured within a time budget, others' turns are waited for until the deadline."""
    deadline = time.tuning_deadline(imported)
    return nullcontext() if deadline is None else machine_turns().awaited_until(deadline)


def _tuners(
    imported: ImportedModel, config: CompileConfig, bench: Bench, allowed: float
) -> Callable[[float | None], list[Tuner]]:
    """Makes a tuner for each device of the target, with a deadline by ``time.monotonic()``; None for no deadline."""
    arbiters = LayerArbiters(imported)

    def made(deadline: float | None) -> list[Tuner]:
        return [
            make_tuner(bench.store, bench.pool, each, bench.progress, bench.directory, deadline, arbiters, allowed)
            for each in config.target.each
        ]

    return made


def _refined(
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
    if selector.policy.target.device != "cpu" and (end := lost_by_fusion(recipes, profiler)):
        _LOG.warning("the plan with fused layers ended as %s; one without them is selected", end)
        recipes, chosen = choose(without_fusions(tables, selector.imported.graph), selector, profiler, whole=whole)
        recipes = _apart(recipes, chosen, refiner, leaves_out)
    while mending is not None and (wrong := wrong_plan(recipes, profiler, selector.budget)) is not None:
        mended = mending(wrong, chosen)
        if mended is None:
            break
        recipes, chosen = choose(mended, selector, profiler, whole=whole)
        recipes = _apart(recipes, chosen, refiner, leaves_out)
    if floor is not None and not any(floor.is_same_as(each) for each in recipes):
        recipes = [*recipes, replace(floor, plan=timed_plan(floor, chosen))]
    return refiner.refine(chosen, recipes)


def _apart(recipes: list[Recipe], tables: Tables, refiner: Refiner, leaves_out: bool) -> list[Recipe]:
    """The recipes to run; ``refiner`` keeps those in reserve that seem too slow to run, and did not run before."""
    if not leaves_out:
        return recipes
    unknown = [each for each in recipes if refiner.profiler.run_of(each) is None]
    hopeless = partial(is_hopeless, recipes=recipes, tables=tables, is_bounded=refiner.budget.is_bounded)
    refiner.reserve = tuple(filter(hopeless, unknown))
    refiner.stock_estimate = sum(expected_seconds(each, tables) for each in refiner.reserve) or None
    return [each for each in recipes if each not in refiner.reserve]


def predicted_recipe(
    found: Candidacy, config: CompileConfig, bench: Bench, folder: Path, *, whole: bool = True
) -> Recipe:
    """The best plan by predicted costs; the errors of narrower types are simulated as for any other target.

    Arguments are those of ``tune_network``.

    Raises:
        InfeasibleError: if no plan meets the pins and limits.
    """
    imported, policy, pool, calibration = found.imported, config.planning, bench.pool, found.calibration
    store, progress = bench.store, bench.progress
    budget = budget_of_model(config.error_budget, imported, calibration.samples)
    tuner = make_tuner(store, pool, config.target, progress)
    tables, costs = predicted_tables(imported, found.candidates, tuner, policy)
    tables = measure_resource_costs(tables, store, pool, folder, config.target, policy.quantities)
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
