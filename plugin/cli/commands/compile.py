"""``compile-to-vmfb``: compile an ONNX model to a tuned module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from sartor.artifact import Artifact, SeveralArtifact
from sartor.cli.options.common import (
    ArchOption,
    BindOption,
    CpusOption,
    JsonOption,
    NoStateOption,
    ShapesOption,
    SizesOption,
    StateOption,
    TargetsOption,
    ThreadsOption,
    VersionOption,
    existing_file,
    read_bindings,
    read_states,
    read_threads,
)
from sartor.cli.options.constraints import (
    CalibrationMethodOption,
    CalibrationOption,
    DoubleOption,
    ErrorMeasureOption,
    FastOption,
    MaxErrorOption,
    MemoryLimitOption,
    ObjectiveOption,
    ParetoOption,
    PlansOption,
    PrecisionOption,
    SearchOption,
    SelectorOption,
    TimeBudgetOption,
    TuneUntilOption,
    WeightsOption,
    read_calibration,
    read_calibration_method,
    read_error_measure,
    read_max_error,
    read_memory_limit,
    read_objective,
    read_pareto,
    read_pins,
    read_precision,
    read_time_budget,
    read_tune_until,
    read_weight_blocks,
)
from sartor.cli.options.several import read_shape_sets, read_targets
from sartor.cli.options.used_files import model_files
from sartor.cli.output.terminal import tuning_progress
from sartor.cli.tables.compile_summary import show_artifact
from sartor.cli.tables.several_summary import show_several
from sartor.config import CompileConfig, default_database
from sartor.errors import UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError
from sartor.open_sizes.calls import CallLog
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.unbound import compile_unbound
from sartor.pipeline import compile_model, replay_plan
from sartor.policies import Double, Search
from sartor.profiling.compilation.outputs import check_beside, check_dumps
from sartor.progress import Progress
from sartor.publishing import Publication, check_apart, publication
from sartor.settings.size_range import OpenShapes
from sartor.several.compilation import compile_several
from sartor.several.settings import SeveralConfig, settings_of
from sartor.several.switching import compile_switching
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet, load_plans
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.cost import Objective


def compile_to_vmfb(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .vmfb to write.")],
    target: TargetsOption = None,
    cpu: CpusOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    precision: PrecisionOption = None,
    weights: WeightsOption = None,
    double: DoubleOption = None,
    max_error: MaxErrorOption = None,
    error_measure: ErrorMeasureOption = None,
    calibration: CalibrationOption = None,
    calibration_method: CalibrationMethodOption = None,
    objective: ObjectiveOption = None,
    memory_limit: MemoryLimitOption = None,
    pareto: ParetoOption = None,
    tuning_db: Annotated[
        Path | None, typer.Option(help="Tuning database. (default: in the user's cache directory)")
    ] = None,
    search: SearchOption = None,
    plans: PlansOption = None,
    time_budget: TimeBudgetOption = None,
    fast: FastOption = False,
    tune_until: TuneUntilOption = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:8786|FILE",
            help="Measure on the workers of this Dask scheduler, which 'sartor worker' starts. (default: here)",
        ),
    ] = None,
    tune_for: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of the workers' machines to tune for, if there are several."),
    ] = None,
    shape: ShapesOption = None,
    sizes: SizesOption = None,
    bind: BindOption = None,
    state: StateOption = None,
    no_state: NoStateOption = False,
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER-GLOB=ROUTINE-GLOB", help="Restrict layers to routines; repeatable."),
    ] = None,
    selector: SelectorOption = None,
    plan: Annotated[Path | None, typer.Option(help="Build this plan instead of tuning.")] = None,
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a report on the module: one page, to be opened offline."),
    ] = None,
    external_weights: Annotated[
        Path | None, typer.Option(metavar="FILE.irpa", help="Write the weights to this file beside the module.")
    ] = None,
    dump_dir: Annotated[
        Path | None,
        typer.Option(
            help="Write the model as loaded and as prepared, and the module after every pass, to this folder, in a "
            "folder of its own for each of several plans."
        ),
    ] = None,
    json: JsonOption = False,
    version: VersionOption = False,
) -> None:
    """Compile an ONNX model into one IREE module in which every layer runs the routine that is best here."""
    tuning = {
        "--save-plan": save_plan,
        "--pin": pin,
        "--selector": selector,
        "--objective": objective,
        "--memory-limit": memory_limit,
        "--pareto": pareto,
        "--tuning-db": tuning_db,
        "--search": search,
        "--precision": precision,
        "--weights": weights,
        "--calibration-method": calibration_method,
        "--plans": plans,
        "--time-budget": time_budget,
        "--fast": fast or None,
        "--tune-until": tune_until,
        "--workers": workers,
        "--tune-for": tune_for,
        "--sizes": sizes,
    }
    loaded = None if plan is None else _load_plan(plan, threads, tuning)
    opened: OpenShapes | None = None
    if isinstance(loaded, PlanSet) and not (target or cpu or arch or shape):
        targets, shapes = settings_of(loaded)
    else:
        targets, given = read_targets(target, cpu, arch), read_shape_sets(shape)
        opened, shapes = (given, ({},)) if isinstance(given, Mapping) else (None, given)
    config = CompileConfig(
        target=targets[0],
        threads=read_threads(loaded.plans[0].plan.threads if isinstance(loaded, PlanSet) else threads),
        precision=read_precision(precision, weights),
        weight_blocks=read_weight_blocks(weights),
        heeds_permissions=precision is None and weights is None,
        double=Double(double or Double.F32),
        max_error=read_max_error(max_error),
        error_measure=read_error_measure(error_measure),
        calibration=read_calibration(calibration),
        calibration_method=read_calibration_method(calibration_method, read_precision(precision, weights)),
        objective=read_objective(objective),
        memory_limit=read_memory_limit(memory_limit),
        pareto=read_pareto(pareto),
        selector=selector or auto.NAME,
        shapes=shapes[0],
        bindings=read_bindings(bind),
        pins=read_pins(pin),
        database=tuning_db or default_database(),
        external_weights=external_weights,
        dump_directory=dump_dir,
        search=Search(search or Search.MODEL),
        tune_until=read_tune_until(tune_until),
        time_budget=read_time_budget(time_budget, fast=fast),
        workers=workers,
        tune_for=tune_for,
        fixes_threads=threads is not None,
        states=read_states(state, keeps_none=no_state),
        finds_states=not no_state,
    )
    config = config if plans is None else replace(config, plans=plans)
    is_several = len(targets) * len(shapes) > 1 or isinstance(loaded, PlanSet)
    others = _others(save_plan, report, len(targets) * len(shapes) if is_several else 0)
    _check_files(existing_file(model), output, {"--plan": plan, "--sizes": sizes}, others, config)
    if is_several and opened is not None:
        raise UsageError(
            "a range of --shape makes one plan for any size, and several targets or plans make a file of several; name "
            "one target, or the sizes that occur, as --shape x=1|8,16"
        )
    if is_several and sizes is not None:
        raise UsageError("--sizes is for one plan for any size, and several are asked for; leave one of them out")
    if is_several:
        several = SeveralConfig(config, targets, shapes)
        show_several(_compile_several(model, output, several, loaded, save_plan, report, others), json)
        return
    if config.objective is Objective.COLD_LATENCY and save_plan is not None:
        raise UsageError("--save-plan is for one plan, and --objective cold+latency makes two; leave one of them out")
    with publication(others) as new:
        log = None if sizes is None else CallLog(existing_file(sizes))
        artifact = _run(model, output, loaded, config, new, _Opened(opened, log))
        if save_plan is not None:
            new.write(save_plan, artifact.plan.text())
        if report is not None:
            # Reports need much that is imported for them alone, a tenth of the command's start.
            from sartor.cli.output.compile_report import write_page

            write_page(report, artifact, config, new)
    show_artifact(artifact, json)


def _others(save_plan: Path | None, report: Path | None, plans: int) -> dict[str, Path]:
    """What is written beside the module and its weights, by option; ``plans`` have a page each in the report."""
    named = {"--save-plan": save_plan, "--report": report}
    given = {option: path for option, path in named.items() if path is not None}
    if report is None:
        return given
    from sartor.report.plan_pages import page_paths

    return given | {f"page {number} of --report": page for number, page in enumerate(page_paths(report, plans), 1)}


def _compile_several(
    model: Path,
    output: Path,
    several: SeveralConfig,
    plans: Plan | PlanSet | None,
    save_plan: Path | None,
    report: Path | None,
    others: Mapping[str, Path],
) -> SeveralArtifact:
    """Compile to several plans in one file."""
    if isinstance(plans, Plan):
        raise UsageError(
            "--plan names one plan, and several levels, devices or shapes make a file of several; name the file of "
            "plans that --save-plan wrote for these, or leave --plan out"
        )
    with publication(others) as new:
        with tuning_progress() as progress:
            artifact = compile_several(model, output, several, progress, plans, new)
        if save_plan is not None:
            new.write(save_plan, artifact.plan_set.text())
        if report is not None:
            from sartor.cli.output.compile_report import write_pages

            write_pages(report, artifact, several.base, new)
    return artifact


@dataclass(frozen=True)
class _Opened:
    """What is given about any sizes: ranges, None if there are none, and with which sizes the network is called."""

    shapes: OpenShapes | None
    log: CallLog | None


def _run(
    model: Path,
    output: Path,
    plan: Plan | PlanSet | None,
    config: CompileConfig,
    new: Publication,
    opened: _Opened,
) -> Artifact:
    single = plan if isinstance(plan, Plan) else None
    with tuning_progress() as progress:
        if opened.shapes is not None:
            return compile_open(model, output, OpenConfig(config, opened.shapes, opened.log), progress, new, single)
        try:
            made = _for_fixed_sizes(model, output, single, config, progress, new)
        except UnboundSizesError as error:
            return compile_unbound(error, model, output, config, progress, new, single, opened.log)
        if opened.log is not None:
            raise UsageError("--sizes is for a file for any size, and all sizes of this model are fixed; leave it out")
        return made


def _for_fixed_sizes(
    model: Path, output: Path, plan: Plan | None, config: CompileConfig, progress: Progress, new: Publication
) -> Artifact:
    if plan is not None:
        return replay_plan(model, plan, output, config, progress, new)
    compiled = compile_switching if config.objective is Objective.COLD_LATENCY else compile_model
    return compiled(model, output, config, progress, new)


def _load_plan(path: Path, threads: int | None, tuning: Mapping[str, object]) -> Plan | PlanSet:
    """Load a plan or those of a file with several, and refuse options that it would ignore, as nothing is tuned."""
    given = [name for name, value in tuning.items() if value not in (None, [])]
    if given:
        raise UsageError(f"--plan settles what {given[0]} asks for; leave one of the two out")
    plan = load_plans(path)
    made_for = plan.threads if isinstance(plan, Plan) else plan.plans[0].plan.threads
    if threads not in (None, made_for):
        raise UsageError(
            f"--threads {threads} contradicts --plan '{path}', which was made for {made_for}; "
            "leave --threads out, or tune again"
        )
    return plan


def _check_files(
    model: Path, output: Path, given: Mapping[str, Path | None], others: Mapping[str, Path], config: CompileConfig
) -> None:
    """Every file that will be written can be, and none is written over another."""
    weights = config.external_weights
    outputs = {"-o": output, **({} if weights is None else {"--external-weights": weights}), **others}
    read = [("the model", model), *((option, path) for option, path in given.items() if path is not None)]
    used = [*read, *config.used_files(outputs.values())]
    check_apart(outputs, used)
    check_beside(output, weights)
    if config.dump_directory is not None:
        check_dumps(config.dump_directory, [*used, *model_files(model), *outputs.items()])
