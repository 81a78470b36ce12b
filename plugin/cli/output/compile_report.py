"""Reports of modules that were just compiled (``--report``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sartor.artifact import Artifact, SeveralArtifact
from sartor.config import CompileConfig
from sartor.publishing import Publication
from sartor.report.page import report_page
from sartor.report.plan_pages import plan_pages
from sartor.report.stored import with_readable
from sartor.report.subject import Subject, open_subject
from sartor.runtime.several.choice import PlanChoice


def write_page(path: Path, artifact: Artifact, config: CompileConfig, new: Publication) -> None:
    """Write the report of a module with one plan, to be published with it."""
    new.write(path, report_page([_subject(artifact, config, new)]))


def write_pages(path: Path, artifact: SeveralArtifact, config: CompileConfig, new: Publication) -> None:
    """Write the reports of a file's plans, each on a page of its own."""
    for file, page in plan_pages(path, _subjects(artifact, config, new)):
        new.write(file, page)


def _subject(artifact: Artifact, config: CompileConfig, new: Publication) -> Subject:
    """What the report shows of a module."""
    subject = with_readable(open_subject(new.place_of(artifact.path), artifact.plan), config.database)
    facts = {} if artifact.error is None else {artifact.named_error: f"{artifact.error:.2g}"}
    if artifact.layers:
        facts["layers one by one"] = artifact.layers
    if artifact.successor is not None:
        facts["of the file's two plans"] = "that for the first inference"
    return replace(subject, name=artifact.path.name, rejections=artifact.rejections, others=facts)


def _subjects(artifact: SeveralArtifact, config: CompileConfig, new: Publication) -> list[Subject]:
    """What the reports show of the plans of a file."""
    subjects = []
    parts = zip(artifact.manifest.alternatives, artifact.plans, artifact.errors, artifact.rejections, strict=True)
    for alternative, plan, error, rejections in parts:
        known = {spec.name: tuple(size for size in spec.shape if size is not None) for spec in alternative.inputs}
        shapes = {spec.name: known[spec.name] for spec in alternative.inputs if known[spec.name] == spec.shape}
        choice = PlanChoice(shapes, device=alternative.device, level=alternative.level)
        subject = with_readable(open_subject(new.place_of(artifact.path), plan, choice), config.database)
        others = {} if error is None else {f"{config.error_measure} error": f"{error:.2g}"}
        name = f"{artifact.path.name}, {alternative.device} {alternative.level}, {alternative.shapes}"
        subjects.append(replace(subject, name=name, rejections=rejections, others=others))
    return subjects
