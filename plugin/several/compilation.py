"""Compiles an ONNX file to one .vmfb with several plans: for CPU levels, for devices, and for shapes of the inputs.

Each plan is made as for a file of its own: tuned, run and checked, or read from a saved plan. Then all are compiled
into one file, which is checked on what the machines at hand choose of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from sartor.artifact import SeveralArtifact
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.level import best_first, level_of, portable
from sartor.dialect_passes.dump import folder_of_plan
from sartor.errors import UsageError
from sartor.frontend.states import state_pairs
from sartor.frontend.target_check import check_target
from sartor.profiling.builder import Build
from sartor.profiling.compilation.made_plan import Made, MakePlan, PlanTask
from sartor.profiling.compilation.outputs import check_files
from sartor.profiling.publisher import stage_files
from sartor.profiling.verdicts import refusal
from sartor.progress import Progress, silent
from sartor.publishing import Publication, part_of
from sartor.runtime.manifest import Manifest
from sartor.several.file_manifest import manifest_of, part_manifest
from sartor.several.making import made_plan
from sartor.several.places import Place, open_places
from sartor.several.settings import SeveralConfig, Shapes, shapes_text
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.networks.joined_job import JoinedModule, JoinedPlan, build_joined
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet
from sartor.tuning.workers.calls import call, open_pool

_TIMEOUT = 1800.0


def compile_several(
    model: Path,
    output: Path,
    several: SeveralConfig,
    progress: Progress = silent,
    plans: PlanSet | None = None,
    whole: Publication | None = None,
    make: MakePlan | None = None,
) -> SeveralArtifact:
    """Write the best plans of a model for each target and shape as one module.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        several: settings.
        progress: told about every step.
        plans: built in place of tuning; one for each target and shape.
        whole: what the module is published with; by default it is published alone.
        make: makes each plan; by default for the shapes of its settings.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    make = make or partial(made_plan, shapes=several.shapes)
    external = several.base.external_weights
    base = replace(several.base, external_weights=None)
    if len(several.shapes) > 1 or len({target.device for target in several.targets}) > 1:
        base = base.without_states("for several shapes or devices")
    _check_known(several.targets)
    targets = _ordered(several.targets)
    saved = None if plans is None else _saved(plans, targets, several.shapes)
    with ExitStack() as stack:
        publication = stack.enter_context(part_of(whole))
        check_files(model, output, several.base, publication.others)
        written = {**publication.others, **({} if external is None else {"the external weights": external})}
        places = open_places(base, targets, stack)
        made: list[Made] = []
        for target, shapes in itertools.product(targets, several.shapes):
            place = places[str(target)]
            bench = place.bench(len(made), 1 / (len(targets) * len(several.shapes)), progress)
            dumped = folder_of_plan(base.dump_directory, len(made))
            config = replace(place.config, shapes=dict(shapes), dump_directory=dumped)
            task = PlanTask(model, output, config, bench, written, elsewhere=place.machines.are_elsewhere)
            plan = None if saved is None else saved[str(target), _key(shapes)]
            made.append(make(task, plan))
        manifest = manifest_of(made, external)
        files = _joined(made, manifest, places[str(targets[0])], external, progress)
        staged = stage_files(files, output, external, publication)
        runs = _verified(made, places, staged)
        return SeveralArtifact(
            path=output,
            size=staged.module.stat().st_size,
            weight_bytes=files.weight_bytes,
            manifest=manifest,
            plans=tuple(done.plan for done in made),
            errors=tuple(None if run is None else run.error for run in runs),
            layers=tuple("" if run is None else run.layers for run in runs),
            shapes=tuple(done.shapes for done in made),
            rejections=tuple(done.rejections for done in made),
            weights=external,
        )


def _check_known(targets: Sequence[Target]) -> None:
    """Have a worker ask for levels of the CPU that are then compared here, as LLVM ends a process that asks for others.

    Raises:
        UsageError: if the compiler does not know a level.
    """
    levels = [target for target in targets if target.is_cpu]
    if len(levels) > 1:
        with open_pool(1) as (pool, _):
            for level in levels:
                check_target(level, pool)


def _ordered(targets: Sequence[Target]) -> list[Target]:
    """Targets in the order of the file: the CPU's levels, the best first, without what they cannot ask for; then GPUs.

    Raises:
        UsageError: if two levels need the same, so that one would never be chosen.
    """
    cpus = [target for target in targets if target.is_cpu]
    if len(cpus) > 1:
        levels = best_first([level_of(portable(target)) for target in cpus])
        for one, other in itertools.pairwise(levels):
            if one.needs == other.needs:
                raise UsageError(
                    f"the levels {one.name} and {other.name} need the same of a CPU, as far as a module can ask; name "
                    "one of them"
                )
        cpus = [level.target for level in levels]
    return [*cpus, *(target for target in targets if not target.is_cpu)]


def _key(shapes: Shapes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((name, tuple(shape)) for name, shape in shapes.items()))


def _saved(plans: PlanSet, targets: Sequence[Target], shapes: Sequence[Shapes]) -> Mapping[tuple[str, object], Plan]:
    """Saved plans by target and shapes.

    Raises:
        UsageError: if one is missing, or too many are there.
    """
    saved: dict[tuple[str, object], Plan] = {(plan.plan.target, _key(plan.shapes)): plan.plan for plan in plans.plans}
    wanted = {(str(target), _key(pair)): pair for target, pair in itertools.product(targets, shapes)}
    for (target, key), pair in wanted.items():
        if (target, key) not in saved:
            raise UsageError(
                f"the saved plans have none for {target} with {shapes_text(pair)}; leave the options for targets and "
                "shapes out, or tune again"
            )
    if len(plans.plans) > len(wanted):
        raise UsageError("the saved plans are for more targets or shapes than are asked for; leave these options out")
    return saved


def _joined(
    made: Sequence[Made], manifest: Manifest, place: Place, external: Path | None, progress: Progress
) -> NetFiles:
    """Compile all plans into one file, and the weights into another if they go there."""
    modules = []
    for device, plans in itertools.groupby(made, lambda done: done.target.device):
        joined = [
            JoinedPlan(
                SplitNetwork(plan.recipe.graph, plan.recipe.variants, plan.imported.ranges, state_pairs(plan.imported)),
                plan.imported.weights,
                plan.target,
            )
            for plan in plans
        ]
        part = next(alternative.part for alternative in manifest.alternatives if alternative.device == device)
        modules.append(JoinedModule(joined, part, part_manifest(manifest, device).to_json()))
    folder = place.directory
    files = NetFiles(folder / "several.vmfb", folder / "several.irpa" if external is not None else None)
    progress("compiling plans into one file", 0, 1)
    arguments = {"modules": modules, "files": files}
    weight_bytes = call(place.pool, build_joined, arguments, "compiling the plans into one file", _TIMEOUT)
    progress("compiling plans into one file", 1, 1)
    return replace(files, weight_bytes=weight_bytes)


def _verified(made: Sequence[Made], places: Mapping[str, Place], files: NetFiles) -> list[NetRun | None]:
    """Check the file on each device and each of the shapes; returns the judged runs of the plans.

    Of several CPU levels the module chooses the best that a machine runs, so the others were checked in modules of
    their own only.

    Raises:
        CompileError: if an output is wrong.
    """
    runs = [plan_made.run for plan_made in made]
    done = set()
    for index, plan_made in enumerate(made):
        if plan_made.runner is None:
            continue
        shapes = tuple(value.type.shape for value in plan_made.imported.graph.inputs)
        key = id(places[str(plan_made.target)].pool), plan_made.target.device, shapes
        if key in done:
            continue
        done.add(key)
        run = plan_made.runner.judged(Build(plan_made.recipe, files))
        if run.status is not Status.OK:
            raise refusal([run], plan_made.runner.budget)
        runs[index] = run
    return runs
