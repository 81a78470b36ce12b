"""Plans of a model for any size: tuned, or saved ones with their code, and what runs their files at many sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.thresholds import thresholds_of
from sartor.config import CompileConfig
from sartor.costing.layer_costs import load_search
from sartor.errors import CompileError
from sartor.frontend.imported_model import ImportedModel
from sartor.open_sizes.checking import checking_thresholds, sized_nets, with_least
from sartor.open_sizes.importing import OpenImport
from sartor.open_sizes.sized_nets import SizedNets
from sartor.planning.recipe import Recipe
from sartor.profiling.cache_check import CachingModel
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy, find_variants
from sartor.profiling.compilation.outputs import publish_best
from sartor.profiling.compilation.tuned_network import Tuned, tune_network
from sartor.profiling.refinement import Refined
from sartor.profiling.replay import Replayed, replay
from sartor.samples.checked_samples import checked_samples
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan


def tuned_plans(
    opened: OpenImport,
    config: CompileConfig,
    bench: Bench,
    folder: Path,
    caching: CachingModel | None = None,
    forms: Mapping[str, Packing] | None = None,
    *,
    follows: bool = False,
) -> tuple[Candidacy, Tuned, SizedNets]:
    """Select plans, and run them.

    Args:
        opened: the model.
        config: settings.
        bench: what plans are made with.
        folder: of the file.
        caching: the model whose caches builds keep; None if they keep none.
        forms: of weights, by name, that are taken where that is hardly slower.
        follows: whether layers read weights in these alone, where they can.
    """
    load_search(bench.store, config.target, config.search)
    least = list[ImportedModel]()
    if config.precision.types:
        opened, *least = with_least(opened, config, bench)
    # Definitions take long with the largest sizes.
    _, small = opened.others[-1]
    candidacy = find_variants(opened.model, config, bench, rewritten=small, sized=least, forms=forms or {})
    if follows:
        candidacy = replace(candidacy, follows=True).of(candidacy.candidates)
    runner = sized_nets(candidacy.calibration.samples, opened, config, bench, caching)
    tuned = tune_network(replace(candidacy, begun=runner), config, bench, folder, whole=False)
    return candidacy, tuned, runner


def replayed_net(
    plan: Plan, opened: OpenImport, config: CompileConfig, bench: Bench, caching: CachingModel | None = None
) -> tuple[Replayed, SizedNets]:
    """A saved plan with its code, and what runs its file; arguments are those of ``tuned_plans``.

    Raises:
        UsageError: if the plan was made for another model or other ranges.
    """
    replayed = replay(plan, opened.model, config.planning, config.dump_directory)
    samples = checked_samples(opened.model, config.calibration, bench.pool, narrow=config.error_budget.narrow)
    return replayed, sized_nets(samples, replace(opened, model=replayed.imported), config, bench, caching)


def judge_of(recipe: Recipe, runner: SizedNets, opened: OpenImport, config: CompileConfig, bench: Bench) -> SizedNets:
    """What checks the file of a plan, whose layers may change their code with the size."""
    thresholds = thresholds_of(recipe.graph, recipe.variants, opened.symbols)
    return checking_thresholds(thresholds, runner, opened, config, bench)


def best_checked(
    tuned: Tuned, runner: SizedNets, opened: OpenImport, config: CompileConfig, bench: Bench
) -> tuple[Refined, NetRun, SizedNets]:
    """The best plan whose module is right, the judged run of it, and what judged it.

    Raises:
        CompileError: if none is.
    """
    judges: dict[str, SizedNets] = {}

    def judged(recipe: Recipe) -> NetRun:
        judges[recipe.digest] = judge = judge_of(recipe, runner, opened, config, bench)
        return checked(recipe, judge)

    refined, run = publish_best(tuned.refined, tuned.refiner, judged)
    return refined, run, judges[refined.recipe.digest]


def checked(recipe: Recipe, runner: SizedNets) -> NetRun:
    """The judged run of a plan in a module of its own."""
    try:
        (build,) = runner.builder.build([recipe])
    except CompileError as error:
        return NetRun(Status.COMPILE_FAILED, message=str(error))
    return runner.judged(build)
