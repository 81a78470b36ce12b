"""A network for which plans were selected and run: what one compilation does between the import and the file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic

from sartor.artifact import ParetoFront
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_arbiters import LayerArbiters
from sartor.costing.layer_costs import DEFAULT_UNTIL, joined_tables, make_tuner, tune, unmeasured
from sartor.costing.predicted_costs import TimelyConversions
from sartor.costing.resource_costs import measure_resource_costs, measure_starts
from sartor.costing.time_budget import TimeBudget
from sartor.errors import LateError, SartorError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.plan_selector import WORTHWHILE, PlanSelector
from sartor.planning.plan_solver import Conversions, PlanSolver
from sartor.planning.recipe import Recipe
from sartor.planning.rounding_assessment import assess
from sartor.precision.sensitivity import Sensitivities
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.profiling.builder import Builder
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy, runner_of
from sartor.profiling.compilation.floor import has_floor, without_wrong
from sartor.profiling.compilation.plan_choice import refined
from sartor.profiling.compilation.stock_floor import may_leave_out
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.profiler import Profiler
from sartor.profiling.refinement import Refined
from sartor.profiling.refiner import Refiner
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.cost_tables.tables import Tables, least_seconds
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.transfers.measured import measured_transfers
from sartor.tuning.workers.beside.stopping import Stopped
from sartor.tuning.workers.sharing import machine_turns

_LOG = logging.getLogger(__name__)
# What follows tuning takes this multiple of the time that the predicted plan took.
_AGAIN = 1.3
# Of that this fraction is for running and checking.
_CHECKING = 0.3
# Seconds below which tuning finds little.
_ENOUGH = 2.0
# Conversions that take less of what tuning may leave out, by the model, are not measured: they may take twice as long.
_NEGLIGIBLE = 0.5

_TunersUntil = Callable[[float | None], list[Tuner]]
"""Makes a tuner for each device of a target, with a deadline by ``time.monotonic()``; None for no deadline."""


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


@dataclass(frozen=True)
class Floor:
    """A network of which the plan that is predicted ran.

    Attributes:
        tuned: with that plan.
        seconds: that predicting, building and running it took.
    """

    tuned: Tuned
    seconds: float

    @property
    def recipe(self) -> Recipe:
        """The plan, without measured times."""
        return self.tuned.refined.profiled.recipe


def predicted_network(network: Candidacy, config: CompileConfig, bench: Bench, folder: Path, *, whole: bool) -> Floor:
    """Predict a plan, and run it; arguments are those of ``tune_network``."""
    begin = monotonic()
    late = replace(bench, time=bench.time.spent())
    return Floor(_tuned(network, config, late, folder, whole=whole, predicts=True), monotonic() - begin)


def tune_network(
    candidacy: Candidacy,
    config: CompileConfig,
    bench: Bench,
    folder: Path,
    *,
    whole: bool = True,
    floor: Floor | None = None,
) -> Tuned:
    """Measure the variants of a model's layers, select plans and run them.

    Within a time budget the plan that is predicted runs first. It is what ships if there is no time for a better one.

    Args:
        found: the model and its variants.
        config: settings.
        bench: what plans are made with.
        folder: on whose disk cold reads are measured.
        whole: whether the model that IREE compiles whole may be shipped.
        floor: the plan that is predicted, if it ran already; what ships is no slower.

    Raises:
        RewriteError: if a rewrite computes something else than the operator's definition.
    """
    if not has_floor(config, bench.time):
        candidacy.checking.finish()
        return _tuned(candidacy, config, bench, folder, whole=whole, floor=None if floor is None else floor.recipe)
    runner = candidacy.begun or runner_of(candidacy.imported, candidacy.calibration.samples, config, bench)
    candidacy = replace(candidacy, begun=runner)
    try:
        floor = floor or predicted_network(candidacy, config, bench, folder, whole=whole)
    except SartorError:
        # If no plan is right since a rewrite is wrong, that is what is told.
        candidacy.checking.finish()
        raise
    candidacy.checking.finish()
    finishing = _AGAIN * floor.seconds
    if not bench.time.leaves(_ENOUGH + finishing):
        if bench.time.seconds:
            _LOG.warning(
                "the time budget leaves no time to measure layers: what the database does not know are guesses"
            )
        return floor.tuned
    time = bench.time.until_finished(finishing)
    candidacy = candidacy.of(find_candidates(candidacy.imported, config.planning, everything=False))
    with runner.builder.until(time.end - _CHECKING * finishing):
        try:
            return _tuned(candidacy, config, replace(bench, time=time), folder, whole=whole, floor=floor.recipe)
        except LateError:
            _LOG.warning("the time budget left no time to build the plan that tuning found: the predicted one ships")
            return floor.tuned


def _tuned(
    candidacy: Candidacy,
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
    pool, store, progress, policy = bench.pool, bench.store, bench.progress, config.planning
    imported, calibration = candidacy.imported, candidacy.calibration
    runner = candidacy.begun or runner_of(imported, calibration.samples, config, bench)
    builder, budget = runner.builder, runner.budget
    made = _tuners(imported, config, bench, budget.allowed_relative)
    measured = _measured(candidacy, config, bench.time, made, predicts=predicts)
    time, (tuner, *others) = measured.time, measured.tuners
    tables = joined_tables(measured.costs, measured_transfers(store, pool, config.target))
    tables = measure_resource_costs(tables, imported.graph, store, pool, folder, config.target, policy.quantities)
    tables = measure_starts(tables, imported, tuner, pool, policy.quantities)
    cache = SensitivityCache.beside(config.database)
    rounding = Sensitivities(
        imported, calibration, pool, budget.measure, config.jobs, cache, progress, is_hurried=tuner.is_late
    ).also_of(candidacy.sized)
    tables, plan_errors = assess(tables, rounding, budget, policy.precision)
    profiler = Profiler(store, builder, runner, policy, is_hurried=time.is_bounded)
    has_guesses = unmeasured(measured.costs[0], store) > 0
    until = DEFAULT_UNTIL if config.until is None else config.until
    timely: Conversions = tuner
    if tuner.target.has_models:
        negligible = _NEGLIGIBLE * until * least_seconds(imported.graph, tables)
        timely = TimelyConversions(tuner, core_of(tuner.target), has_guesses, negligible)
    solver = PlanSolver(imported, timely, policy, progress, tuple(others), builder.planned_memory, candidacy.forms)
    # By guesses another plan has to promise what would have been measured for.
    selector = PlanSelector(solver, budget, plan_errors, max(1 - WORTHWHILE, until if has_guesses else 0.0))
    if policy.is_fair:
        selector = replace(selector, by_call=_by_call(candidacy, config, made(0.0)[0]))
    refiner = Refiner(profiler, selector, time)
    leaves_out = may_leave_out(config, is_bounded=time.is_bounded)
    is_mended = (time.is_bounded or has_guesses) and floor is None and not others
    mending = partial(without_wrong, tuner=made(None)[0]) if is_mended else None
    best = refined(tables, refiner, mending, floor, whole=whole, leaves_out=leaves_out)
    pareto = config.pareto and selector.pareto(best.placed, policy.limits, config.pareto)
    return Tuned(best, refiner, builder, runner, calibration.samples, pareto or None)


@dataclass(frozen=True)
class _Measured:
    """The costs of layers on each device, what measured them, and the time that is left."""

    costs: Sequence[Tables]
    tuners: Sequence[Tuner]
    time: TimeBudget


def _measured(
    candidacy: Candidacy, config: CompileConfig, time: TimeBudget, made: _TunersUntil, *, predicts: bool
) -> _Measured:
    """Measure the variants on each device, until the time is spent or the user ends it."""
    tuned = partial(
        tune,
        candidacy.imported,
        candidacy.candidates,
        policy=config.planning,
        search=config.search,
        until=config.until,
        forms=candidacy.forms,
        predicts=predicts,
    )
    try:
        with time.stop.interruptible(), _patience(time, candidacy.imported):
            tuners = made(time.tuning_deadline(candidacy.imported))
            return _Measured([tuned(tuner) for tuner in tuners], tuners, time)
    except Stopped:
        # The rest is as when a time budget is spent.
        time = time.spent()
        tuners = made(time.end)
        return _Measured([tuned(tuner) for tuner in tuners], tuners, time)


def _by_call(
    candidacy: Candidacy, config: CompileConfig, late: Tuner
) -> tuple[Mapping[str, Mapping[str, Measurement]], ...]:
    """What is known of variants with the sizes of each call that counts, predicted where nothing was measured.

    Args:
        found: the model and its variants.
        config: settings.
        late: a tuner whose deadline has passed.
    """
    graph = candidacy.imported.graph
    alone = [
        tuple(replace(other, share=float(other is call)) for other in graph.calls) for call in graph.calls if call.share
    ]
    models = [replace(candidacy.imported, graph=replace(graph, calls=calls)) for calls in alone]
    tuned = partial(tune, candidates=candidacy.candidates, tuner=late, policy=config.planning, search=config.search)
    return tuple(tuned(model, predicts=True).measured for model in models)


def _patience(time: TimeBudget, imported: ImportedModel) -> AbstractContextManager[None]:
    """While variants are measured within a time budget, others' turns are waited for until the deadline."""
    deadline = time.tuning_deadline(imported)
    return nullcontext() if deadline is None else machine_turns().awaited_until(deadline)


def _tuners(imported: ImportedModel, config: CompileConfig, bench: Bench, allowed: float) -> _TunersUntil:
    """Makes the tuners of a target."""
    arbiters = LayerArbiters(imported)

    def made(deadline: float | None) -> list[Tuner]:
        return [
            make_tuner(bench.store, bench.pool, device, bench.progress, bench.directory, deadline, arbiters, allowed)
            for device in config.target.each
        ]

    return made
