"""From an ONNX file to a tuned .vmfb: one short function per step, in this order.

open_workers     start workers, once the compiler is known to know the target
load_front       load, prepare, import, fold weights, form layers      (in a worker)
find_candidates  ask every routine about every task
tune             compile and measure what the store does not know
select           solve for the best plans, measuring the adapts they need
build            compile the best plans, and the stock model, whole
profile          check them against ONNX Runtime, time them
refine           select again by what layers took in place; the fastest correct network is shipped
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from sartor.artifact import Artifact, check_writable, publish
from sartor.building import Build, Builder
from sartor.codegen.routine import Variant
from sartor.codegen.routines import ROUTINES
from sartor.config import CompileConfig
from sartor.dialect_passes.annotate import Candidates, annotate, annotated_module
from sartor.dialect_passes.dump import Dumper
from sartor.errors import CompileError, InfeasibleError, UsageError
from sartor.front_job import Front, Refusal
from sartor.net_runner import NetRunner
from sartor.profiling import Profiler
from sartor.progress import Progress, silent
from sartor.recipe import Recipe, guessed_recipe, recipe_of_plan, split_recipe, unsplit_recipe
from sartor.refining import Refiner
from sartor.target_check import check_target, runs_here
from sartor.tuning.ceilings import peak_operations
from sartor.tuning.measure_job import MeasureSettings
from sartor.tuning.measurement import Status
from sartor.tuning.plan import Plan
from sartor.tuning.selection.dprs import k_best
from sartor.tuning.selection.registry import SELECTORS
from sartor.tuning.selection.selection import Selection
from sartor.tuning.shortlist import shortlist
from sartor.tuning.store import Store
from sartor.tuning.tables import Tables, adapts_between, selection_problem, tuned_units, units_of
from sartor.tuning.tuner import Tuner, TuneSettings
from sartor.tuning.unit import AdaptKind
from sartor.tuning.workers import JobStatus, WorkerPool

_LOG = logging.getLogger(__name__)
_FRONT = "sartor.front_job:run_front"
_TIMEOUT = 900.0
_SELECT_ROUNDS = 12
_MEMORY_LIMIT = 12 << 30


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
    with _workspace(config) as (pool, directory), Store.open(config.database) as store:
        front = load_front(model, config, pool, progress)
        candidates = find_candidates(front, config)
        if not runs_here(config.target):
            return _compile_only(front, candidates, pool, directory, output, config, progress)
        tuner = make_tuner(store, pool, config, progress)
        tables = tune(front, candidates, tuner, config)
        recipes, tables = choose(front, tables, tuner, config, progress)
        builder = Builder(front, pool, directory, config, progress)
        refiner = Refiner(front, Profiler(store, builder), lambda each: select(front, each, tuner, config, progress))
        recipe, profiled, plan = refiner.refine(tables, recipes)
        best = builder.build([recipe])[0]
        return _ship(best, plan, profiled.error, output, config)


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
    (built,) = Builder(front, pool, directory, config, progress).build([recipe])
    return _ship(built, recipe.plan, None, output, config)


def replay_plan(model: Path, plan: Plan, output: Path, config: CompileConfig, progress: Progress = silent) -> Artifact:
    """Build a module from a plan, without measuring: the same model and plan give the same bytes.

    Raises:
        UsageError: if the plan was made for another model, target or version.
        CompileError: if the module's outputs are not ONNX Runtime's.
    """
    check_writable(output)
    config = replace(config, threads=plan.threads)
    with _workspace(config) as (pool, directory):
        front = load_front(model, config, pool, progress)
        recipe = recipe_of_plan(plan, front, find_candidates(front, config).variants, config)
        builder = Builder(front, pool, directory, config, progress)
        (built,) = builder.build([recipe])
        return _ship(built, plan, _checked(built, builder), output, config)


def _checked(built: Build, builder: Builder) -> float | None:
    """The module's relative error against ONNX Runtime, None where it does not run."""
    if runs_here(builder.config.target):
        return NetRunner(builder).check(built)
    _LOG.warning("this machine does not run %s code: compiled, but not checked", builder.config.target)
    return None


@contextmanager
def open_workers(config: CompileConfig) -> Iterator[WorkerPool]:
    """Workers that cannot eat the machine, for a target that the compiler knows.

    Raises:
        UsageError: if it does not know the target.
    """
    with WorkerPool(config.jobs, memory_limit=_MEMORY_LIMIT) as pool:
        check_target(config.target, pool)
        yield pool


@contextmanager
def _workspace(config: CompileConfig) -> Iterator[tuple[WorkerPool, Path]]:
    """Workers, and a directory for what they compile; both gone at the end."""
    with open_workers(config) as pool, tempfile.TemporaryDirectory(prefix="sartor-") as directory:
        yield pool, Path(directory)


def load_front(model: Path, config: CompileConfig, pool: WorkerPool, progress: Progress) -> Front:
    """The model as layers, made in a worker: the file is not trusted."""
    progress("importing", 0, 1)
    job = {"path": model, "shapes": dict(config.shapes), "dump": config.dump_directory}
    (result,) = pool.map_unordered(_FRONT, [("front", job)], _TIMEOUT)
    if result.status is not JobStatus.OK:
        raise CompileError(f"importing '{model}' ended as {result.status.value}: {result.message}")
    if isinstance(result.value, Refusal):
        raise result.value.error
    front: Front = result.value
    _check_pins(front, config)
    return front


def _check_pins(front: Front, config: CompileConfig) -> None:
    """A pin that fits no layer is a mistake, and no wish to be ignored."""
    for pin in config.pins:
        if not any(fnmatchcase(layer.name, pin.layers) for layer in front.graph.layers):
            names = ", ".join(layer.name for layer in front.graph.layers[:5])
            raise UsageError(f"no layer is called '{pin.layers}' as a pin wants; the layers are {names}, …")


def find_candidates(front: Front, config: CompileConfig) -> Candidates:
    """All routines' answers about all tasks."""
    candidates = annotate(front.graph, ROUTINES, config.target)
    if config.dump_directory is not None:
        dumper = Dumper(config.dump_directory, count=len(list(config.dump_directory.glob("*.mlir"))))
        dumper.write("annotate", annotated_module(front.graph, candidates))
    return candidates


def make_tuner(store: Store, pool: WorkerPool, config: CompileConfig, progress: Progress) -> Tuner:
    """The tuner for this target, with limits that suit its speed."""
    slow = config.target.device == "vulkan"
    measure = MeasureSettings(
        device=config.target.device,
        threads=config.threads,
        max_error=config.max_error,
        rounds=3 if slow else 12,
        seconds=4.0 if slow else 1.5,
    )
    return Tuner(store, pool, TuneSettings(config.target, measure, 120.0, 300.0 if slow else 60.0), progress)


def tune(front: Front, candidates: Candidates, tuner: Tuner, config: CompileConfig) -> Tables:
    """Cost tables of all tasks, and the machine's peak, which says how good they are."""
    variants = shortlist(front.graph, candidates.variants, config.pins)
    peak = peak_operations(config.target, config.threads) if config.target.device == "cpu" else None
    units = tuned_units(front.graph, variants)
    measured = tuner.measure([*units, peak.unit] if peak else units)
    return Tables(variants, measured, peak=peak.per_second(measured) if peak else None)


def choose(
    front: Front, tables: Tables, tuner: Tuner, config: CompileConfig, progress: Progress
) -> tuple[list[Recipe], Tables]:
    """What is worth running whole: the selected plans, and the unsplit model unless the user pinned layers.

    Raises:
        InfeasibleError: if no plan meets the pins.
    """
    if config.pins:
        return select(front, tables, tuner, config, progress)
    unsplit = unsplit_recipe(front, config, tables.peak)
    try:
        recipes, tables = select(front, tables, tuner, config, progress)
        return [*recipes, unsplit], tables
    except InfeasibleError as error:
        _LOG.warning("%s: only the unsplit model is left", error)
        return [unsplit], tables


def select(
    front: Front, tables: Tables, tuner: Tuner, config: CompileConfig, progress: Progress
) -> tuple[list[Recipe], Tables]:
    """The best plans; conversions are measured as plans ask for them, until the best plans ask for no more.

    The tables come back with what was measured.
    """
    device = config.target.device
    for done in range(_SELECT_ROUNDS):
        progress("selecting", done, _SELECT_ROUNDS)
        selections = _solve(front, tables, config)
        chosen = [_variants(front, tables, each) for each in selections]
        kinds = [kind for each in chosen for _, kind in adapts_between(front.graph, each, device)]
        wanted = units_of(kind for kind in kinds if kind not in tables.adapts)
        if not wanted:
            break
        tables = _with_adapts(tables, wanted, tuner, config)
    recipes = [
        split_recipe(front, variants, tables, selection, config)
        for variants, selection in zip(chosen, selections, strict=True)
    ]
    return recipes, tables


def _solve(front: Front, tables: Tables, config: CompileConfig) -> list[Selection]:
    problem = selection_problem(front.graph, tables, config.target.device, config.objective, config.pins)
    return k_best(problem, config.plans) if config.selector == "dprs" else [SELECTORS[config.selector](problem)]


def _variants(front: Front, tables: Tables, selection: Selection) -> dict[str, Variant]:
    by_name = {key: {each.descriptor: each for each in listed} for key, listed in tables.variants.items()}
    return {layer.name: by_name[layer.task.key][selection.choices[layer.name].name] for layer in front.graph.layers}


def _with_adapts(tables: Tables, wanted: list[AdaptKind], tuner: Tuner, config: CompileConfig) -> Tables:
    units = {kind: kind.unit(config.target) for kind in wanted}
    measured = tuner.measure(units.values())
    adapts = dict(tables.adapts)
    for kind, unit in units.items():
        measurement = measured[unit.key].get(unit.variants[0].descriptor)
        if measurement is None or measurement.status is not Status.OK:
            raise InfeasibleError(f"converting {kind.tensor} from {kind.source} to {kind.target} does not work")
        adapts[kind] = measurement.time
    return replace(tables, adapts=adapts)


def _ship(built: Build, plan: Plan, error: float | None, output: Path, config: CompileConfig) -> Artifact:
    """Weights first: a module is never there without them."""
    if built.files.weights is not None and config.external_weights is not None:
        publish(built.files.weights, config.external_weights)
    publish(built.files.module, output)
    return Artifact(output, plan, error, output.stat().st_size, config.external_weights)
