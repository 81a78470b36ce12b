"""``sartor report``: one page about a module, or about two that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.database.options import existing_database
from sartor.cli.options.common import DeviceOption, JsonOption, ThreadsOption
from sartor.cli.options.plan_choice import PlanLevelOption, PlanShapesOption, read_choice
from sartor.cli.options.report_files import (
    ColdFilesOption,
    MeasureOption,
    ModelExplorerOption,
    PageOption,
    ReportedModelOption,
    ReportedModules,
    ReportedPeersOption,
    SavedPlansOption,
    check_measuring,
    check_subjects,
    check_swept,
    check_targets,
    explorer_files,
)
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.options.swept_sizes import Sizes, SizesOption, as_texts, swept_sizes
from sartor.cli.options.timing import read_peers
from sartor.cli.output.measured_report import Measured, with_errors, with_sizes, with_times
from sartor.cli.output.terminal import show_json, tuning_progress
from sartor.comparison.bench_job import PEERS
from sartor.config import default_database
from sartor.first_inference.cold_record import read_cold
from sartor.frontend.target_check import check_file_limit
from sartor.publishing import publication
from sartor.report.model_explorer import graph_collections, node_data
from sartor.report.page import json_text, report_page
from sartor.report.stored import with_stored
from sartor.report.subject import Subject, open_subject
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import bound_inputs, module_signature, noise_inputs
from sartor.runtime.several.choice import PlanChoice
from sartor.samples.feeds import make_feeds
from sartor.settings.quantities import show_size
from sartor.tuning.records.plan import Plan


def report(
    modules: ReportedModules,
    output: PageOption = None,
    plan: SavedPlansOption = None,
    tuning_db: Annotated[
        Path | None, typer.Option(help="Tuning database. (default: in the user's cache directory)")
    ] = None,
    measure: MeasureOption = False,
    vs: ReportedModelOption = None,
    peers: ReportedPeersOption = None,
    model_explorer: ModelExplorerOption = None,
    cold: ColdFilesOption = None,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    sizes: SizesOption = None,
    device: DeviceOption = None,
    cpu: PlanLevelOption = None,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Write a page about a module: its network, candidates, times, roofline, memory and errors; it opens offline."""
    check_subjects(modules, {"--plan": plan, "--cold": cold})
    others = {"--threads": threads is not None, "--size": bool(size)}
    check_measuring(measures=measure, has_model=vs is not None, peers=peers, others=others)
    check_swept(sizes, measures=measure, modules=modules)
    swept = swept_sizes(modules[0], sizes, size) if sizes else []
    if tuning_db is not None:
        existing_database(tuning_db)
    check_file_limit()
    names = read_peers(peers, tuple(PEERS))
    target = output or Path(f"{modules[0].stem or 'report'}.html")
    database = tuning_db or default_database()
    explorer = explorer_files(model_explorer, modules)
    check_targets([target, *explorer], modules, [*(plan or ()), *(cold or ())], vs, database)
    measuring = _Measuring(measure, vs, names, read_choice(shape, device, level=cpu), threads, size, swept)
    subjects = []
    for index, path in enumerate(modules):
        saved = Plan.load(plan[index]) if plan else None
        subject = with_stored(open_subject(path, saved, measuring.choice), database)
        subject = replace(subject, cold=read_cold(cold[index]).runs) if cold else subject
        subjects.append(_measured(subject, path, measuring))
    with publication() as new:
        new.write(target, report_page(subjects))
        for path, data in zip(explorer, (graph_collections, node_data), strict=False):
            new.write(path, json_text(data(subjects[0])))
    _tell(target, json)


@dataclass(frozen=True)
class _Measuring:
    """What is measured for the page: times beside peers, and errors if there is a model; by options of the command."""

    times: bool
    model: Path | None
    peers: tuple[str, ...]
    choice: PlanChoice
    threads: int | None
    sizes: Sequence[str] | None
    swept: Sequence[Sizes]

    @property
    def of_once(self) -> Sequence[str] | None:
        """The sizes where there is a single one: those in the middle of several."""
        return as_texts(self.swept[len(self.swept) // 2]) if self.swept else self.sizes


def _measured(subject: Subject, path: Path, measuring: _Measuring) -> Subject:
    """The subject with what is measured now."""
    if not (measuring.times or measuring.model):
        return subject
    choice, model = measuring.choice, measuring.model
    measured = Measured(path, model, choice, measuring.threads, _random_feeds(path, choice, measuring.of_once))
    # Of a module for any size the model is there for other runtimes.
    if model is not None and not (measuring.times and subject.manifest.sizes):
        with tuning_progress() as progress:
            subject = with_errors(subject, measured, model, progress)
    if measuring.swept:
        feeds = [(one, _random_feeds(path, choice, as_texts(one))) for one in measuring.swept]
        subject = with_sizes(subject, measured, measuring.peers, feeds)
    return with_times(subject, measured, measuring.peers) if measuring.times else subject


def _random_feeds(path: Path, choice: PlanChoice, sizes: Sequence[str] | None) -> Mapping[str, Array]:
    specs = sized_inputs(path, module_signature(path, choice=choice).inputs, sizes)
    return make_feeds(specs, {}, bound_inputs(path), noise_inputs(path))


def _tell(target: Path, json: bool) -> None:
    """Say which page was written, and how large it is."""
    size = target.stat().st_size
    if json:
        show_json({"path": str(target), "size_bytes": size})
    else:
        print(f"'{target}', {show_size(size)}")
