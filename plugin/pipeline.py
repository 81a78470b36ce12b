"""From an ONNX file to a tuned .vmfb: one short function per step, in this order.

open_workers     start workers, once the compiler is known to know the target
load_front       load, prepare, import, fold weights, form layers      (in a worker)
calibrate        read the samples, find ranges for 8 bits, if they are asked for
find_candidates  ask every routine about every task
tune             compile and measure what the store does not know
weigh            find out what routines need besides time, if that counts
assess           find out what rounding layers does to the outputs, if that is allowed
choose           solve for the best plans, of all types and of single ones, measuring the adapts they need
build            compile the best plans, and the stock model, whole
profile          check them against ONNX Runtime, time them
refine           select again by what layers took in place
publish          run the very file of the best beside ONNX Runtime; if it is wrong, the next best
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from sartor.arbiters import LayerArbiters
from sartor.artifact import Artifact, check_writable
from sartor.building import Builder
from sartor.calibration import calibrate, checked_samples
from sartor.codegen.routines import FUSED_ROUTINES, LOW_PRECISION, routines_for
from sartor.config import DEFAULT_MAX_ERROR, CompileConfig
from sartor.dialect_passes.annotate import Candidates, annotate, annotated_module, never
from sartor.dialect_passes.dump import Dumper
from sartor.error_bound import ErrorBound
from sartor.error_budget import assess
from sartor.errors import InfeasibleError, UsageError
from sartor.imported_model import Front
from sartor.net_runner import NetRunner
from sartor.permitted import permitted_candidates, permitted_routines
from sartor.profiling import Profiler
from sartor.progress import Progress, silent
from sartor.publishing import Publisher, publish_unchecked
from sartor.ranging import quantised_by, with_children
from sartor.recipe import Recipe, guessed_recipe, precision_of, recipe_of_plan, unsplit_recipe
from sartor.refining import Refined, Refiner
from sartor.selecting import PlanSelector
from sartor.sensitivities import Sensitivities
from sartor.single_precision import single_precision_plans
from sartor.target_check import check_target, runs_here
from sartor.time_budget import TimeBudget
from sartor.tuning.ceilings import peak_operations
from sartor.tuning.checking import Arbiter
from sartor.tuning.error_measures import RELATIVE
from sartor.tuning.measure_job import MeasureSettings
from sartor.tuning.measurement import Status
from sartor.tuning.plan import Plan
from sartor.tuning.search import Search
from sartor.tuning.search_run import Measured, SearchRun
from sartor.tuning.selection.infeasible import LimitError
from sartor.tuning.selection.limits import Quantity
from sartor.tuning.shortlist import is_superfluous, shortlist
from sartor.tuning.store import Store
from sartor.tuning.tables import Tables, tuned_units
from sartor.tuning.tuner import Tuner, TuneSettings
from sartor.tuning.unit import Unit
from sartor.tuning.worker_calls import Refusal, open_pool
from sartor.tuning.workers import JobStatus, WorkerPool
from sartor.weighing import weigh

_LOG = logging.getLogger(__name__)
_FRONT = "sartor.front_job:run_front"
_TIMEOUT = 900.0


def compile_model(model: Path, output: Path, config: CompileConfig, progress: Progress = silent) -> Artifact:
    """Tune a model and write the module that won.

    Args:
        model: ONNX file.
        output: where the .vmfb goes; replaced at the very end, or not at all.
        config: settings.
        progress: told what is going on.

    Raises:
        SartorError: of the kind that says what went wrong.
    """
    check_writable(output)
    budget = TimeBudget.of(config.time_budget)
    with open_workspace(config) as (pool, directory), Store.open(config.database) as store:
        front = load_front(model, config, pool, progress, directory)
        calibration = calibrate(front, config, pool, progress)
        front = replace(front, ranges=with_children(front.graph, {**calibration.ranges.values, **front.ranges}))
        candidates = find_candidates(front, config, everything=False)
        if not runs_here(config.target):
            return _compile_only(front, candidates, pool, directory, output, config, progress)
        deadline = budget.tuning_deadline(front)
        tuner = make_tuner(store, pool, config, progress, directory, deadline, LayerArbiters(front))
        tables = weigh(tune(front, candidates, tuner, config), store, pool, output.parent, config)
        tables, error_budget = assess(tables, Sensitivities(front, calibration, config, pool, progress))
        builder = Builder(front, pool, directory, config, progress)
        profiler = Profiler(store, builder, calibration.samples)
        selector = PlanSelector(front, tuner, config, progress, error_budget)
        recipes, tables = choose(tables, selector, profiler)
        refiner = Refiner(config, profiler, selector, budget)
        refined = refiner.refine(tables, recipes)
        pareto = selector.pareto(refined.placed)
        refined, error = publish_best(refined, refiner, Publisher(builder, profiler.runner, output))
        shipped = _artifact(refined.plan, error, output, config)
        unchecked = calibration.samples.unchecked
        return replace(shipped, pareto=pareto, samples=profiler.sample_count, unchecked=unchecked)


def _compile_only(
    front: Front,
    candidates: Candidates,
    pool: WorkerPool,
    directory: Path,
    output: Path,
    config: CompileConfig,
    progress: Progress,
) -> Artifact:
    """What cannot run here cannot be measured: a guess for a CPU, stock code for a GPU, or what the pins ask for."""
    _LOG.warning("this machine does not run %s code: compiled, but neither tuned nor checked", config.target)
    guessed = config.pins or config.target.device == "cpu"
    recipe = guessed_recipe(front, candidates.variants, config) if guessed else unsplit_recipe(front, config)
    publish_unchecked(recipe, Builder(front, pool, directory, config, progress), output)
    return _artifact(recipe.plan, None, output, config)


def replay_plan(model: Path, plan: Plan, output: Path, config: CompileConfig, progress: Progress = silent) -> Artifact:
    """Build a module from a plan, without measuring: the same model and plan give the same bytes.

    The plan says what layers are computed in, and with that what error is usual.

    Raises:
        UsageError: if the plan was made for another model, target or version.
        CompileError: if the module's outputs are not ONNX Runtime's.
        LimitError: if they are not as exact as the user wants.
    """
    check_writable(output)
    config = replace(config, threads=plan.threads, precision=precision_of(plan))
    with open_workspace(config) as (pool, directory):
        front = load_front(model, config, pool, progress, directory)
        front = quantised_by(plan.ranges, front)
        samples = checked_samples(front, config, pool)
        recipe = recipe_of_plan(plan, front, find_candidates(front, config).variants, config)
        builder = Builder(front, pool, directory, config, progress)
        if not runs_here(config.target):
            _LOG.warning("this machine does not run %s code: compiled, but not checked", config.target)
            publish_unchecked(recipe, builder, output)
            return _artifact(plan, None, output, config)
        runner = NetRunner(builder, samples, ErrorBound.of(front, samples, config))
        run = Publisher(builder, runner, output).publish(recipe)
        if run.status is not Status.OK:
            raise runner.bound.refusal([run])
        shipped = _artifact(plan, run.error, output, config)
        return replace(shipped, samples=runner.verified_count, unchecked=samples.unchecked)


@contextmanager
def open_workers(config: CompileConfig) -> Iterator[WorkerPool]:
    """Workers that cannot eat the machine, for a target that the compiler knows.

    Raises:
        UsageError: if it does not know the target.
    """
    with open_workspace(config) as (pool, _):
        yield pool


@contextmanager
def open_workspace(config: CompileConfig) -> Iterator[tuple[WorkerPool, Path]]:
    """Workers, and a directory for what they compile; both gone at the end, with all temporary files of the workers.

    Raises:
        UsageError: as ``open_workers``.
    """
    with open_pool(config.jobs) as (pool, directory):
        check_target(config.target, pool)
        yield pool, directory


def load_front(
    model: Path, config: CompileConfig, pool: WorkerPool, progress: Progress, directory: Path | None = None
) -> Front:
    """The model as layers, made in a worker: the file is not trusted. What is large goes to ``directory``, if given."""
    progress("importing", 0, 1)
    job = {"path": model, "shapes": dict(config.shapes), "dump": config.dump_directory, "directory": directory}
    job["target"] = config.target
    (result,) = pool.map_unordered(_FRONT, [("front", job)], _TIMEOUT)
    if result.status is not JobStatus.OK:
        raise result.error(f"importing '{model}'")
    if isinstance(result.value, Refusal):
        raise result.value.error
    front: Front = result.value
    _check_pins(front, config)
    return front


def _check_pins(front: Front, config: CompileConfig) -> None:
    """A pin that fits no layer is a mistake, and no wish to be ignored."""
    for pin in config.pins:
        if not any(fnmatchcase(layer.name, pin.layers) for layer in front.graph.all_layers()):
            names = ", ".join(layer.name for layer in front.graph.layers[:5])
            raise UsageError(f"no layer is called '{pin.layers}' as a pin wants; the layers are {names}, …")


def find_candidates(front: Front, config: CompileConfig, *, everything: bool = True) -> Candidates:
    """All routines' answers about all tasks; or only those that may be measured, which takes half as long."""
    skip = never if everything or config.pins else is_superfluous
    routines = routines_for(LOW_PRECISION) if everything else permitted_routines(front, config)
    candidates = annotate(front.graph, routines, config.target, FUSED_ROUTINES, skip)
    if not everything:
        candidates = permitted_candidates(candidates, front, config)
    if config.dump_directory is not None:
        dumper = Dumper(config.dump_directory, count=len(list(config.dump_directory.glob("*.mlir"))))
        dumper.write("annotate", annotated_module(front.graph, candidates))
    return candidates


def make_tuner(
    store: Store,
    pool: WorkerPool,
    config: CompileConfig,
    progress: Progress,
    directory: Path | None = None,
    deadline: float | None = None,
    arbiter: Callable[[Unit], Arbiter | None] = lambda _: None,
) -> Tuner:
    """The tuner for this target, with limits that suit its speed; what follows ``progress`` is as for ``Tuner``."""
    slow = config.target.device == "vulkan"
    measure = MeasureSettings(
        device=config.target.device,
        threads=config.threads,
        # What is measured serves later compilations too, which may allow more than this one.
        max_error=max(config.allowed_error if config.error_measure == RELATIVE else 0.0, DEFAULT_MAX_ERROR),
        rounds=3 if slow else 12,
        seconds=4.0 if slow else 1.0,
    )
    settings = TuneSettings(config.target, measure, 120.0, 300.0 if slow else 60.0, deadline)
    return Tuner(store, pool, settings, progress, directory, arbiter)


def tune(front: Front, candidates: Candidates, tuner: Tuner, config: CompileConfig) -> Tables:
    """Cost tables of all tasks, and the machine's peak, which says how good they are."""
    variants = shortlist(front.graph, candidates.variants, config.pins)
    peak = peak_operations(config.target, config.threads) if config.target.device == "cpu" else None
    ceilings = tuner.measure([peak.unit] if peak else [])
    measured = _measured(front, tuned_units(front.graph, variants), tuner, config)
    per_second = peak.per_second(ceilings) if peak else None
    return Tables(variants, {**ceilings, **measured}, peak=per_second)


def _measured(front: Front, units: list[Unit], tuner: Tuner, config: CompileConfig) -> Measured:
    """All variants or those that are worth it; predictions for tasks that there was no time for.

    What is pinned must be known, and what takes little memory is not what the search looks for.
    """
    layers = tuple(front.graph.all_layers())
    search = SearchRun(tuner, units, Counter(layer.task.key for layer in layers))
    if config.search is Search.FULL or config.target.device != "cpu" or config.quantities != (Quantity.LATENCY,):
        measured = tuner.measure(units)
    else:
        pinned = {each.task.key for each in layers if any(fnmatchcase(each.name, pin.layers) for pin in config.pins)}
        tuner.measure(unit for unit in units if unit.key in pinned)
        measured = search.measured()
    guessed = {} if config.time_budget is None else search.guessed(measured)
    if guessed:
        message = "the time budget was spent before %d of %d kinds of layers were measured: their routines are guesses"
        _LOG.warning(message, len(guessed), len(units))
    return {key: {**found, **guessed.get(key, {})} for key, found in measured.items()}


def choose(tables: Tables, selector: PlanSelector, profiler: Profiler) -> tuple[list[Recipe], Tables]:
    """What is worth running whole: the selected plans, and the unsplit model unless the user pinned layers.

    Raises:
        InfeasibleError: if no plan meets the pins and limits.
    """
    config = selector.config
    unsplit = [] if config.pins else [unsplit_recipe(selector.front, config, tables.peak)]
    try:
        recipes, tables = selector.select(tables, config.limits)
        if not selector.tuner.is_late:
            single, tables = single_precision_plans(selector, tables, recipes, config.limits)
            recipes = [*recipes, *single]
    except LimitError as error:
        if not profiler.counts_memory:
            raise
        _LOG.info("%s; what the smallest plan takes is measured", error)
        recipes, tables = selector.smallest(tables)
    except InfeasibleError as error:
        if not unsplit:
            raise
        _LOG.warning("%s: only the unsplit model is left", error)
        recipes = []
    return [*recipes, *unsplit], tables


def publish_best(refined: Refined, refiner: Refiner, publisher: Publisher) -> tuple[Refined, float | None]:
    """Publish the best network whose very file is right, and say which it is and by what it errs.

    What the store says of another is replaced by what its file showed.

    Raises:
        CompileError: if none is right.
        LimitError: if those that are right take too much memory, or none is as exact as the user wants.
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
