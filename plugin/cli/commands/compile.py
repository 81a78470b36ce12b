"""``compile-to-vmfb``: compile an ONNX model to a tuned module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sartor.artifact import Artifact, SeveralArtifact
from sartor.cli.commands.open_levels import compile_open_levels
from sartor.cli.options.common import existing_file
from sartor.cli.options.compilation import CompileOptions
from sartor.cli.options.record import taking
from sartor.cli.options.used_files import model_files
from sartor.cli.output.terminal import tuning_progress
from sartor.cli.tables.compile_summary import show_artifact
from sartor.cli.tables.several_summary import show_several
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError
from sartor.open_sizes.calls import CallLog
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.unbound import bounded, compile_unbound
from sartor.pipeline import compile_model, replay_plan
from sartor.profiling.compilation.outputs import check_beside, check_dumps
from sartor.progress import Progress
from sartor.publishing import Publication, check_apart, publication
from sartor.settings.size_range import OpenShapes
from sartor.several.compilation import compile_several
from sartor.several.settings import SeveralConfig, Shapes
from sartor.several.switching import compile_switching
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet, load_plans
from sartor.tuning.selection.problem.cost import Objective

_FIXED = "--sizes is for a file for any size, and all sizes of this model are fixed; leave it out"


@taking(CompileOptions)
def compile_to_vmfb(options: CompileOptions) -> None:
    """Compile an ONNX model into one IREE module in which every layer runs the routine that is best here."""
    loaded = None if options.plan is None else _load_plan(options.plan, options)
    targets, shapes, opened = options.several(loaded)
    threads = loaded.plans[0].plan.threads if isinstance(loaded, PlanSet) else options.threads
    config = options.config(targets[0], shapes[0], threads)
    is_several = len(targets) * len(shapes) > 1 or isinstance(loaded, PlanSet)
    others = _others(options, len(targets) * len(shapes) if is_several else 0)
    _check_files(existing_file(options.model), options, others, config)
    if is_several:
        _compile_several(options, config, (targets, shapes, opened), loaded, others)
        return
    if config.objective is Objective.COLD_LATENCY and options.save_plan is not None:
        raise UsageError("--save-plan is for one plan, and --objective cold+latency makes two; leave one of them out")
    plan = loaded if isinstance(loaded, Plan) else None
    _compile_one(options, config, opened, plan, others)


def _others(options: CompileOptions, plans: int) -> dict[str, Path]:
    """What is written beside the module and its weights, by option; ``plans`` have a page each in the report."""
    named = {"--save-plan": options.save_plan, "--report": options.report}
    given = {option: path for option, path in named.items() if path is not None}
    if options.report is None:
        return given
    from sartor.report.plan_pages import page_paths

    pages = page_paths(options.report, plans)
    return given | {f"page {number} of --report": page for number, page in enumerate(pages, 1)}


def _compile_several(
    options: CompileOptions,
    config: CompileConfig,
    asked: tuple[tuple[Target, ...], tuple[Shapes, ...], OpenShapes | None],
    plans: Plan | PlanSet | None,
    others: Mapping[str, Path],
) -> None:
    """Compile to several plans in one file, and show them; ``asked`` is what ``CompileOptions.several`` gives."""
    if isinstance(plans, Plan):
        raise UsageError(
            "--plan names one plan, and several levels, devices or shapes make a file of several; name the file of "
            "plans that --save-plan wrote for these, or leave --plan out"
        )
    with publication(others) as new:
        with tuning_progress() as progress:
            artifact = _several(options, config, asked, plans, progress, new)
        if options.save_plan is not None:
            new.write(options.save_plan, artifact.plan_set.text())
        if options.report is not None:
            from sartor.cli.output.compile_report import write_pages

            write_pages(options.report, artifact, config, new)
    show_several(artifact, options.json)


def _several(
    options: CompileOptions,
    config: CompileConfig,
    asked: tuple[tuple[Target, ...], tuple[Shapes, ...], OpenShapes | None],
    plans: PlanSet | None,
    progress: Progress,
    new: Publication,
) -> SeveralArtifact:
    """Compile to a plan for each target and shape, or for each target to one for any size."""
    model, output, (targets, shapes, opened) = options.model, options.output, asked
    log = None if options.sizes is None else CallLog(existing_file(options.sizes))
    if opened is not None:
        return compile_open_levels(model, output, OpenConfig(config, opened, log), targets, progress, plans, new)
    if log is not None and len(shapes) > 1:
        raise UsageError("--sizes is for one plan for any size, and several are asked for; leave one of them out")
    try:
        artifact = compile_several(model, output, SeveralConfig(config, targets, shapes), progress, plans, new)
    except UnboundSizesError as error:
        if len(shapes) > 1:
            raise
        with bounded(error, config, log) as opening:
            return compile_open_levels(model, output, opening, targets, progress, plans, new)
    if log is not None:
        raise UsageError(_FIXED)
    return artifact


def _compile_one(
    options: CompileOptions,
    config: CompileConfig,
    opened: OpenShapes | None,
    plan: Plan | None,
    others: Mapping[str, Path],
) -> None:
    """Compile to one plan, for any sizes in the ranges if some are opened, and show it."""
    with publication(others) as new:
        calls = None if options.sizes is None else CallLog(existing_file(options.sizes))
        with tuning_progress() as progress:
            if opened is None:
                artifact = _for_one_size(options, config, calls, plan, progress, new)
            else:
                opening = OpenConfig(config, opened, calls)
                artifact = compile_open(options.model, options.output, opening, progress, new, plan)
        if options.save_plan is not None:
            new.write(options.save_plan, artifact.plan.text())
        if options.report is not None:
            # Reports need much that is imported for them alone, a tenth of the command's start.
            from sartor.cli.output.compile_report import write_page

            write_page(options.report, artifact, config, new)
    show_artifact(artifact, options.json)


def _for_one_size(
    options: CompileOptions,
    config: CompileConfig,
    calls: CallLog | None,
    plan: Plan | None,
    progress: Progress,
    new: Publication,
) -> Artifact:
    """Compile a model whose sizes are not opened; one that leaves some without a bound is compiled for any."""
    model, output = options.model, options.output
    try:
        artifact = _for_fixed_sizes(model, output, plan, config, progress, new)
    except UnboundSizesError as error:
        return compile_unbound(error, model, output, config, progress, new, plan, calls)
    if calls is not None:
        raise UsageError(_FIXED)
    return artifact


def _for_fixed_sizes(
    model: Path, output: Path, plan: Plan | None, config: CompileConfig, progress: Progress, new: Publication
) -> Artifact:
    if plan is not None:
        return replay_plan(model, plan, output, config, progress, new)
    compiled = compile_switching if config.objective is Objective.COLD_LATENCY else compile_model
    return compiled(model, output, config, progress, new)


def _load_plan(path: Path, options: CompileOptions) -> Plan | PlanSet:
    """Load a plan or those of a file with several, and refuse options that it would ignore, as nothing is tuned."""
    if given := options.of_tuning:
        raise UsageError(f"--plan settles what {given[0]} asks for; leave one of the two out")
    plan = load_plans(path)
    made_for = plan.threads if isinstance(plan, Plan) else plan.plans[0].plan.threads
    if options.threads not in (None, made_for):
        raise UsageError(
            f"--threads {options.threads} contradicts --plan '{path}', which was made for {made_for}; "
            "leave --threads out, or tune again"
        )
    return plan


def _check_files(model: Path, options: CompileOptions, others: Mapping[str, Path], config: CompileConfig) -> None:
    """Every file that will be written can be, and none is written over another."""
    weights = config.external_weights
    outputs = {"-o": options.output, **({} if weights is None else {"--external-weights": weights}), **others}
    used = [("the model", model), *options.read_files.items(), *config.used_files(outputs.values())]
    check_apart(outputs, used)
    check_beside(options.output, weights)
    if config.dump_directory is not None:
        check_dumps(config.dump_directory, [*used, *model_files(model), *outputs.items()])
