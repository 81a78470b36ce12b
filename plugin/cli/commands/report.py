"""``sartor report``: one page about a module, or about two that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.database.options import existing_database
from sartor.cli.options.common import DeviceOption, JsonOption, ThreadsOption, read_threads
from sartor.cli.options.plan_choice import PlanLevelOption, PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.options.used_files import model_files, module_files
from sartor.cli.output.terminal import show_json, tuning_progress
from sartor.comparison.bench_job import PEERS, SELF, BenchRuns, time_in_worker
from sartor.comparison.compare_job import Question, ask
from sartor.comparison.layer_errors import LayerError
from sartor.comparison.model_comparison import layered_manifest, open_comparison, usual_error
from sartor.config import default_database
from sartor.errors import UsageError
from sartor.first_inference.cold_record import read_cold
from sartor.frontend.target_check import check_file_limit
from sartor.onnx_model.rewrites.number_types.widen_halves import widens_halves
from sartor.policies import DEFAULT_MAX_ERROR
from sartor.profiling.layers.dispatch_job import dispatches_in_worker
from sartor.publishing import check_apart, publication
from sartor.report.model_explorer import graph_collections, node_data
from sartor.report.page import json_text, report_page
from sartor.report.stored import with_stored
from sartor.report.subject import LayerErrors, Subject, open_subject, with_dispatches
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import (
    bound_inputs,
    check_first_part,
    inference_functions,
    module_manifest,
    module_signature,
    module_weights,
    noise_inputs,
    session_signature,
    session_threads,
)
from sartor.runtime.several.choice import PlanChoice
from sartor.samples.feeds import make_feeds
from sartor.settings.quantities import show_size
from sartor.tuning.records.plan import Plan
from sartor.tuning.store.sqlite.file import database_files
from sartor.tuning.workers.calls import open_pool
from sartor.tuning.workers.sharing import machine_turns

_MOST_MODULES = 2
_ROUNDS = 20


def report(
    modules: Annotated[
        list[Path], typer.Argument(metavar="MODEL.vmfb [OTHER.vmfb]", help="A compiled module, or two to compare.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write. (default: MODEL.html)")
    ] = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(help="The plan that the compilation saved, with measured times; once for each module."),
    ] = None,
    tuning_db: Annotated[
        Path | None, typer.Option(help="Tuning database. (default: in the user's cache directory)")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the module and its layers now; with --vs beside other runtimes.")
    ] = False,
    vs: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.onnx",
            help="The model: also show each layer's error against the reference, and why routines do not support it.",
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help=f"With --measure and --vs, runtimes to compare with: {','.join(PEERS)}. (default: onnxruntime)"
        ),
    ] = None,
    model_explorer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Also write the graph for Model Explorer, and its times as node data to FILE.times.json.",
        ),
    ] = None,
    cold: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json",
            help="Also draw the first inferences that 'sartor bench --cold --json' wrote; once for each module.",
        ),
    ] = None,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    device: DeviceOption = None,
    cpu: PlanLevelOption = None,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Write a page about a module: its network, candidates, times, roofline, memory and errors; it opens offline."""
    if len(modules) > _MOST_MODULES:
        raise UsageError(f"a report compares {_MOST_MODULES} modules, not {len(modules)}; leave some out")
    for option, files in {"--plan": plan, "--cold": cold}.items():
        if files and len(files) != len(modules):
            raise UsageError(
                f"{option} is given {len(files)} times for {len(modules)} modules; give one for each, or none"
            )
    if peers is not None and not (measure and vs):
        raise UsageError("--peers are timed with --measure on the model of --vs; give both, or leave --peers out")
    for option, is_given in {"--threads": threads is not None, "--size": bool(size)}.items():
        if is_given and not (measure or vs):
            raise UsageError(f"{option} is for --measure and --vs; give one of them, or leave it out")
    if tuning_db is not None:
        existing_database(tuning_db)
    check_file_limit()
    names = _peer_names(peers or "onnxruntime")
    target = output or Path(f"{modules[0].stem or 'report'}.html")
    database = tuning_db or default_database()
    explorer = _explorer_files(model_explorer, modules)
    _check_targets([target, *explorer], modules, [*(plan or ()), *(cold or ())], vs, database)
    choice = read_choice(shape, device, level=cpu)
    subjects = []
    for index, path in enumerate(modules):
        subject = with_stored(open_subject(path, Plan.load(plan[index]) if plan else None, choice), database)
        subject = replace(subject, cold=read_cold(cold[index]).runs) if cold else subject
        feeds = _random_feeds(path, choice, size) if measure or vs else {}
        subject = _with_errors(subject, path, vs, choice, threads, feeds) if vs else subject
        subjects.append(_with_times(subject, path, vs, names, choice, threads, feeds) if measure else subject)
    with publication() as new:
        new.write(target, report_page(subjects))
        for path, data in zip(explorer, (graph_collections, node_data), strict=False):
            new.write(path, json_text(data(subjects[0])))
    written = target.stat().st_size
    if json:
        show_json({"path": str(target), "size_bytes": written})
    else:
        print(f"'{target}', {show_size(written)}")


def _peer_names(peers: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(peers.split(",")))
    if unknown := [name for name in names if name not in PEERS]:
        raise UsageError(f"'{unknown[0]}' is no peer, choose among {', '.join(PEERS)}")
    return names


def _explorer_files(path: Path | None, modules: Sequence[Path]) -> list[Path]:
    """The file of the graph and that of its times; none if they are not wanted."""
    if path is None:
        return []
    if len(modules) > 1:
        raise UsageError("--model-explorer writes the graph of one module; leave the other out")
    return [path, path.parent / f"{path.stem}.times{path.suffix}"]


def _check_targets(
    targets: Sequence[Path], modules: Sequence[Path], others: Sequence[Path], vs: Path | None, database: Path
) -> None:
    """Make sure that what is written can be, and over nothing that is read."""
    used = [each for module in modules for each in module_files(module)]
    used += [("a file that is read", path) for path in others]
    used += [("the tuning database", path) for path in database_files(database)]
    options = ("-o", "--model-explorer", "the times for Model Explorer")
    check_apart(dict(zip(options, targets, strict=False)), [*used, *(model_files(vs) if vs else [])])


def _random_feeds(path: Path, choice: PlanChoice, sizes: Sequence[str] | None) -> Mapping[str, Array]:
    specs = sized_inputs(path, module_signature(path, choice=choice).inputs, sizes)
    return make_feeds(specs, {}, bound_inputs(path), noise_inputs(path))


def _with_times(
    subject: Subject,
    path: Path,
    vs: Path | None,
    peers: tuple[str, ...],
    choice: PlanChoice,
    threads: int | None,
    feeds: Mapping[str, Array],
) -> Subject:
    """The subject with times of whole inferences, interleaved with those of peers, and of its layers within one."""
    manifest = subject.manifest
    here = module_manifest(path, replace(choice, level=None)) if choice.level is not None else None
    if here is not None and here.levels != manifest.levels:
        raise UsageError(f"this machine runs the level {', '.join(here.levels)}, so {choice.level} cannot be timed")
    kind, device = manifest.devices[0], choice.device or manifest.devices[0]
    workers = read_threads(threads or session_threads(path)) if kind == "cpu" else None
    signature = module_signature(path, choice=choice)
    names = peers if vs else ()
    if not manifest.segments:
        check_first_part(path, kind)
    own = session_signature(path, signature)
    runs = BenchRuns(
        path,
        own,
        device,
        workers,
        vs,
        names,
        read_threads(threads),
        feeds,
        _ROUNDS,
        False,
        manifest.bound,
        bool(manifest.noise),
    )
    samples = time_in_worker(runs).samples
    arrays = [feeds[spec.name] for spec in signature.inputs]
    settings = {"device": device, "threads": workers, "parameters": module_weights(path, manifest)}
    subject = replace(subject, times={name: each.seconds for name, each in samples.items()})
    if manifest.segments or manifest.successor is not None:
        # Of two plans the page shows that for the first inference, and timed is the one that takes over.
        return subject
    function = inference_functions(manifest, signature)[-1]
    with open_pool(1, machine_turns()) as (pool, _):
        statistics = dispatches_in_worker(pool, {"path": path, "entry": function.entry, "inputs": arrays, **settings})
    statistics = statistics.without_plans()
    return with_dispatches(subject, statistics.dispatches, samples[SELF].median)


def _with_errors(
    subject: Subject, path: Path, model: Path, choice: PlanChoice, threads: int | None, feeds: Mapping[str, Array]
) -> Subject:
    """The subject with its layers' errors against the reference, and why routines do not support them."""
    layered_manifest(path, choice)
    usual, signature = usual_error(path, choice), module_signature(path, choice=choice)
    narrow, manifest = usual > DEFAULT_MAX_ERROR, subject.manifest
    widens = widens_halves(manifest.devices)
    with open_pool(1) as (pool, _):
        right = ask(pool, Question(model, signature, feeds, usual, None, narrow, manifest.bound, widens))
    with (
        tuning_progress() as progress,
        open_comparison(
            path, model, feeds, right.shapes, choice=choice, threads=threads, progress=progress
        ) as comparison,
    ):
        errors = {each.layer: _errors(each) for each in comparison.table()}
        return replace(subject, errors=errors, rejections=comparison.rejections)


def _errors(each: LayerError) -> LayerErrors:
    return LayerErrors(each.error, each.before, each.alone)
