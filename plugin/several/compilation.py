"""Compiles an ONNX file to one .vmfb with several plans: for CPU levels, for devices, and for shapes of the inputs.

Each plan is made as for a file of its own: tuned, run and checked. Then all are compiled into one file, which is
checked on what this machine chooses of it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sartor.artifact import SeveralArtifact
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.level import best_first, level_of, portable
from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, UsageError
from sartor.frontend.loading import import_network, open_workspace
from sartor.frontend.target_check import check_target, runs_here
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Build
from sartor.profiling.compilation.outputs import check_files, publish_best
from sartor.profiling.compilation.tuned_network import Bench, Tuned, find_variants, predicted_recipe, tune_network
from sartor.profiling.verdicts import judged, refusal
from sartor.progress import Progress, silent
from sartor.publishing import publish_together, staged
from sartor.runtime.manifest import Manifest
from sartor.several.file_manifest import Made, manifest_of, part_manifest
from sartor.several.settings import SeveralConfig
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.networks.joined_job import JoinedModule, JoinedPlan, build_joined
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_TIMEOUT = 1800.0


def compile_several(model: Path, output: Path, several: SeveralConfig, progress: Progress = silent) -> SeveralArtifact:
    """Tune a model for each target and shape, and write the best plans as one module.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        several: settings.
        progress: told about every step.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    base = several.base
    check_files(model, output, base)
    with (
        open_workspace(several.targets[0], base.jobs) as (pool, directory),
        Store.open(base.database, goes_on=True) as store,
    ):
        for target in several.targets[1:]:
            check_target(target, pool)
        made: list[Made] = []
        for target, shapes in itertools.product(_ordered(several.targets), several.shapes):
            own = directory / f"plans{len(made)}"
            own.mkdir()
            bench = Bench(pool, own, store, TimeBudget.of(base.time_budget), progress)
            made.append(_make(model, output, replace(base, target=target, shapes=dict(shapes)), bench))
        manifest = manifest_of(made)
        path, weight_bytes = _joined(made, manifest, pool, directory, progress)
        with staged(path, output) as copy:
            errors = _verified(made, copy.path)
            publish_together((copy,))
    plans = tuple(each.plan for each in made)
    return SeveralArtifact(output, output.stat().st_size, weight_bytes, manifest, plans, errors)


def _ordered(targets: Sequence[Target]) -> list[Target]:
    """Targets in the order of the file: the CPU's levels, the best first, without what they cannot ask for; then GPUs.

    Raises:
        UsageError: if two levels need the same, so that one would never be chosen.
    """
    cpus = [target for target in targets if target.device == "cpu"]
    if len(cpus) > 1:
        levels = best_first([level_of(portable(target)) for target in cpus])
        for one, other in itertools.pairwise(levels):
            if one.needs == other.needs:
                raise UsageError(
                    f"the levels {one.name} and {other.name} need the same of a CPU, as far as a module can ask; name "
                    "one of them"
                )
        cpus = [level.target for level in levels]
    return [*cpus, *(target for target in targets if target.device != "cpu")]


def _make(model: Path, output: Path, config: CompileConfig, bench: Bench) -> Made:
    """Tune one plan, or guess it if this machine cannot run its target."""
    imported = import_network(model, config.importing, bench.pool, bench.progress, bench.directory)
    check_files(model, output, config, imported.external)
    found = find_variants(imported, config, bench)
    if not runs_here(config.target):
        recipe = (
            predicted_recipe(found, config, bench, output.parent, whole=False)
            if config.target.device == "cpu"
            else guessed_recipe(found.imported, found.candidates.variants, config.planning)
        )
        basis = f"; times are {recipe.plan.basis}" if recipe.plan.basis else ""
        _LOG.warning("this machine does not run %s code: its plan is neither tuned nor checked%s", config.target, basis)
        return Made(config.target, found.imported, recipe, recipe.plan)
    tuned = tune_network(found, config, bench, output.parent, whole=False)
    refined, error = publish_best(tuned.refined, tuned.refiner, lambda recipe: _checked(recipe, tuned))
    return Made(config.target, found.imported, refined.recipe, refined.plan, error, tuned.runner)


def _checked(recipe: Recipe, tuned: Tuned) -> NetRun:
    """The judged run of a plan in a module of its own, beside ONNX Runtime."""
    try:
        (build,) = tuned.builder.build([recipe])
    except CompileError as error:
        return NetRun(Status.COMPILE_FAILED, message=str(error))
    return judged(tuned.runner.verify(build), tuned.runner.budget)


def _joined(
    made: Sequence[Made], manifest: Manifest, pool: WorkerPool, directory: Path, progress: Progress
) -> tuple[Path, int]:
    """Compile all plans into one file; returns it and the bytes of its weights."""
    modules = []
    for device, plans in itertools.groupby(made, lambda each: each.target.device):
        joined = [
            JoinedPlan(
                SplitNetwork(each.recipe.graph, each.recipe.variants, each.imported.ranges),
                each.imported.weights,
                each.target,
            )
            for each in plans
        ]
        part = next(each.part for each in manifest.alternatives if each.device == device)
        modules.append(JoinedModule(joined, part, part_manifest(manifest, device).to_json()))
    path = directory / "several.vmfb"
    progress("compiling plans into one file", 0, 1)
    arguments = {"modules": modules, "path": path}
    weight_bytes = call(pool, build_joined, arguments, "compiling the plans into one file", _TIMEOUT)
    progress("compiling plans into one file", 1, 1)
    return path, weight_bytes


def _verified(made: Sequence[Made], path: Path) -> tuple[float | None, ...]:
    """Check the file on each device and each of the shapes; returns the errors of the plans.

    Of several CPU levels the module chooses the best that this machine runs, so the others were checked in modules of
    their own only.

    Raises:
        CompileError: if an output is wrong.
    """
    errors = [each.error for each in made]
    done = set()
    for index, each in enumerate(made):
        key = each.target.device, tuple(value.type.shape for value in each.imported.graph.inputs)
        if each.runner is None or key in done:
            continue
        done.add(key)
        run = judged(each.runner.verify(Build(each.recipe, NetFiles(path, None))), each.runner.budget)
        if run.status is not Status.OK:
            raise refusal([run], each.runner.budget)
        errors[index] = run.error
    return tuple(errors)
