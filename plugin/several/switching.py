"""Compiles an ONNX file to one .vmfb with two plans: for the first inference, and for later ones.

Each plan is selected, run and checked as for a file of its own. Then both are compiled into one file, whose two
functions are checked again. A file with one plan is written where both are the same, or where the memory limit leaves
no room for the weights of both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.artifact import Artifact
from sartor.codegen.linking.several.switching import LATER_ENTRY
from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.kept_import import forgotten_if_wrong
from sartor.frontend.loading import import_network, open_workspace
from sartor.frontend.target_check import runs_here
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Build
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy, find_variants
from sartor.profiling.compilation.outputs import check_files, publish_best
from sartor.profiling.compilation.tuned_network import Tuned, tune_network
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.publisher import Publisher, stage_files
from sartor.profiling.refinement import Refined
from sartor.profiling.verdicts import refusal
from sartor.progress import Progress, silent
from sartor.publishing import Publication, part_of
from sartor.runtime.manifest import SWITCHING_FORMAT, Manifest
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.networks.switching_job import SwitchingNetwork, build_switching
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.store.store import Store
from sartor.tuning.workers.calls import call

_LOG = logging.getLogger(__name__)
_TIMEOUT = 1800.0


@dataclass(frozen=True)
class Made:
    """A plan of the file.

    Attributes:
        tuned: the network that it was selected for, with what runs it.
        refined: the plan.
        error: of its outputs against ONNX Runtime.
    """

    tuned: Tuned
    refined: Refined
    error: float | None

    @property
    def recipe(self) -> Recipe:
        """The plan with its code."""
        return self.refined.recipe

    @property
    def weight_bytes(self) -> int:
        """Bytes of its packed weights."""
        (build,) = self.tuned.builder.build([self.recipe])
        return build.files.weight_bytes


def compile_switching(
    model: Path, output: Path, config: CompileConfig, progress: Progress = silent, whole: Publication | None = None
) -> Artifact:
    """Tune a model for its first inference and for later ones, and write both plans as one module.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        config: settings, with the objective ``cold+latency``.
        progress: told about every step.
        whole: what the module is published with; by default it is published alone.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    with part_of(whole) as publication:
        check_files(model, output, config, publication.others)
        if config.target.others or not config.target.is_cpu:
            raise UsageError(
                f"the objective {Objective.COLD_LATENCY} is for the CPU, where a file's weights are used in place; "
                f"choose {Objective.LATENCY}"
            )
        settled = config.without_states("that changes plans after the first inference")
        return _compile(model, output, settled, progress, publication)


def _compile(
    model: Path, output: Path, config: CompileConfig, progress: Progress, publication: Publication
) -> Artifact:
    time = TimeBudget.of(config.time_budget)
    with (
        open_workspace(config.target, config.jobs, end=time.patience) as (pool, directory),
        Store.open(config.database, goes_on=True) as store,
    ):
        _check(config)
        bench = Bench(pool, directory, store, time, progress)
        imported = import_network(model, config.importing, pool, progress, directory, time.end)
        bench.imported.append(imported)
        check_files(model, output, config, publication.others, imported.external)
        sharing = replace(bench, time=time.part(2))
        with forgotten_if_wrong(bench.imported, KeptValues.of_imports()):
            candidacy = find_variants(imported, config, bench)
            first = _make(candidacy, replace(config, objective=Objective.COLD, pareto=None), sharing, output.parent)
            later = _make(candidacy, replace(config, objective=Objective.LATENCY), bench, output.parent)
            staged = _staged(first, later, candidacy.imported, config, bench, output, publication)
        artifact = replace(staged, size=publication.place_of(output).stat().st_size, others=pool.others)
        return replace(artifact, pareto=later.tuned.pareto, rejections=candidacy.candidates.rejections)


def _check(config: CompileConfig) -> None:
    """Make sure that this machine runs a target, which the compiler is known to know."""
    if not runs_here(config.target):
        raise UsageError(
            f"the objective {Objective.COLD_LATENCY} compares first inferences, and this machine does not run "
            f"{config.target} code; choose {Objective.LATENCY}"
        )


def _make(candidacy: Candidacy, config: CompileConfig, bench: Bench, folder: Path) -> Made:
    """Tune one plan, and check it in a module of its own."""
    own = bench.directory / config.objective
    own.mkdir()
    tuned = tune_network(candidacy, config, replace(bench, directory=own), folder, whole=False)
    refined, run = publish_best(tuned.refined, tuned.refiner, lambda recipe: _checked(recipe, tuned))
    return Made(tuned, refined, run.error)


def _checked(recipe: Recipe, tuned: Tuned) -> NetRun:
    """The judged run of a plan in a module of its own, beside ONNX Runtime."""
    try:
        (build,) = tuned.builder.build([recipe])
    except CompileError as error:
        return NetRun(Status.COMPILE_FAILED, message=str(error))
    return tuned.runner.judged_and_kept(build)


def _staged(
    first: Made,
    later: Made,
    imported: ImportedModel,
    config: CompileConfig,
    bench: Bench,
    output: Path,
    publication: Publication,
) -> Artifact:
    """Stage the file, with one plan if there is no reason or no room for the other."""
    if first.recipe.is_same_as(later.recipe):
        _LOG.info("the plan for later inferences is that for the first")
        return _with_one(later, config, output, publication)
    with _joined(first, later, imported, config, bench) as (files, counts):
        needed = _memory(first, later, counts)
        limit = config.memory_limit
        if limit is not None and needed is not None and needed > limit:
            _LOG.warning(
                "the plans for the first and for later inferences need %d bytes of memory together, and the limit is "
                "%d: the file has that for the first alone",
                needed,
                limit,
            )
            return _with_one(first, config, output, publication)
        runs = _verified(first, later, stage_files(files, output, config.external_weights, publication))
    return Artifact(
        output,
        first.refined.plan,
        runs[0].error,
        0,
        config.external_weights,
        measure=config.error_measure,
        layers=runs[0].layers,
        allowed=first.tuned.runner.budget.accepted,
        samples=first.tuned.runner.verified_count,
        unchecked=first.tuned.samples.doubts.unchecked,
        reference=first.tuned.runner.reference,
        unvouched=first.tuned.runner.unvouched,
        successor=later.refined.plan,
        successor_error=runs[1].error,
        successor_layers=runs[1].layers,
        added_bytes=counts[1],
    )


def _with_one(made: Made, config: CompileConfig, output: Path, publication: Publication) -> Artifact:
    """Stage a file with one plan."""
    tuned = made.tuned
    run = Publisher(tuned.builder, tuned.runner, output, publication).publish(made.recipe)
    if run.status is not Status.OK:
        raise refusal([run], tuned.runner.budget)
    return Artifact(
        output,
        made.refined.plan,
        run.error,
        0,
        config.external_weights,
        measure=config.error_measure,
        layers=run.layers,
        allowed=tuned.runner.budget.accepted,
        samples=tuned.runner.verified_count,
        unchecked=tuned.samples.doubts.unchecked,
        reference=tuned.runner.reference,
        unvouched=tuned.runner.unvouched,
    )


@contextmanager
def _joined(
    first: Made, later: Made, imported: ImportedModel, config: CompileConfig, bench: Bench
) -> Iterator[tuple[NetFiles, tuple[int, int]]]:
    """The file of both plans, with the bytes of the first one's weights and of those that only the other reads."""
    name = bench.directory / "switching"
    weights = None if config.external_weights is None else name.with_suffix(".irpa")
    files = NetFiles(name.with_suffix(".vmfb"), weights)
    nets = [SplitNetwork(made.recipe.graph, made.recipe.variants, imported.ranges) for made in (first, later)]
    arguments = {
        "net": SwitchingNetwork(*nets),
        "weights": imported.weights,
        "target": config.target,
        "manifest": manifest_of(first.recipe, later.recipe, imported, config),
        "files": files,
    }
    bench.progress("compiling plans into one file", 0, 1)
    counts = call(bench.pool, build_switching, arguments, "compiling two plans into one file", _TIMEOUT)
    bench.progress("compiling plans into one file", 1, 1)
    yield replace(files, weight_bytes=sum(counts)), counts


def manifest_of(first: Recipe, later: Recipe, imported: ImportedModel, config: CompileConfig) -> Manifest:
    """The manifest of a file with two plans, of which the second has no weights of its own yet."""
    own, other = (Manifest.from_json(recipe.manifest(imported, config.header)) for recipe in (first, later))
    return replace(
        own,
        features=tuple(sorted({*own.features, *other.features})),
        successor={"entry": LATER_ENTRY, "weight_bytes": 0, "plan": other.plan},
        format=SWITCHING_FORMAT,
    )


def _memory(first: Made, later: Made, counts: tuple[int, int]) -> int | None:
    """Bytes of both plans' weights, and of what the larger one computes with; None if a plan's are not known."""
    others = []
    for made in (first, later):
        memory = made.refined.profiled.memory
        if memory is None:
            return None
        others.append(memory - made.weight_bytes)
    return sum(counts) + max(others)


def _verified(first: Made, later: Made, files: NetFiles) -> tuple[NetRun, NetRun]:
    """Check both functions of the file; returns the judged runs.

    Raises:
        CompileError: if an output is wrong.
    """
    return (
        _run(first.tuned.runner, first.recipe, files),
        _run(later.tuned.runner, later.recipe, replace(files, entry=LATER_ENTRY)),
    )


def _run(runner: NetRunner, recipe: Recipe, files: NetFiles) -> NetRun:
    run = runner.judged(Build(recipe, files))
    if run.status is not Status.OK:
        raise refusal([run], runner.budget)
    return run
