"""Options that say what a report is about and where it is written, and functions that check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.options.used_files import model_files, module_files
from sartor.comparison.bench_job import PEERS
from sartor.errors import UsageError
from sartor.publishing import check_apart
from sartor.tuning.store.sqlite.file import database_files

_MOST_MODULES = 2

ReportedModules = Annotated[
    list[Path], typer.Argument(metavar="MODEL.vmfb [OTHER.vmfb]", help="A compiled module, or two to compare.")
]
PageOption = Annotated[Path | None, typer.Option("--output", "-o", help="The page to write. (default: MODEL.html)")]
SavedPlansOption = Annotated[
    list[Path] | None,
    typer.Option("--plan", help="The plan that the compilation saved, with measured times; once for each module."),
]
MeasureOption = Annotated[
    bool, typer.Option("--measure", help="Time the module and its layers now; with --vs beside other runtimes.")
]
ReportedModelOption = Annotated[
    Path | None,
    typer.Option(
        "--vs",
        metavar="MODEL.onnx",
        help="The model: also show each layer's error against the reference, and why routines do not support it.",
    ),
]
ReportedPeersOption = Annotated[
    str | None,
    typer.Option(
        "--peers", help=f"With --measure and --vs, runtimes to compare with: {','.join(PEERS)}. (default: onnxruntime)"
    ),
]
ModelExplorerOption = Annotated[
    Path | None,
    typer.Option(
        "--model-explorer",
        metavar="FILE.json",
        help="Also write the graph for Model Explorer, and its times as node data to FILE.times.json.",
    ),
]
ColdFilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--cold",
        metavar="FILE.json",
        help="Also draw the first inferences that 'sartor bench --cold --json' wrote; once for each module.",
    ),
]


def check_subjects(modules: Sequence[Path], by_module: Mapping[str, Sequence[Path] | None]) -> None:
    """Make sure that a page can show so many modules.

    Args:
        modules: what the page is about.
        by_module: files of which each module has its own, by option.

    Raises:
        UsageError: if not, or an option has another number of files.
    """
    if len(modules) > _MOST_MODULES:
        raise UsageError(f"a report compares {_MOST_MODULES} modules, not {len(modules)}; leave some out")
    for option, files in by_module.items():
        if files and len(files) != len(modules):
            raise UsageError(
                f"{option} is given {len(files)} times for {len(modules)} modules; give one for each, or none"
            )


def check_measuring(*, measures: bool, has_model: bool, peers: str | None, others: Mapping[str, bool]) -> None:
    """Make sure that no option is given of what is not measured.

    Args:
        measures: whether the module is timed.
        has_model: whether the model is given, against which layers are compared.
        peers: the runtimes that are named.
        others: whether options are given that are for either of these, by name.

    Raises:
        UsageError: if one is.
    """
    if peers is not None and not (measures and has_model):
        raise UsageError("--peers are timed with --measure on the model of --vs; give both, or leave --peers out")
    for option, is_given in others.items():
        if is_given and not (measures or has_model):
            raise UsageError(f"{option} is for --measure and --vs; give one of them, or leave it out")


def check_swept(sizes: Sequence[str] | None, *, measures: bool, modules: Sequence[Path]) -> None:
    """Make sure that times over sizes are measured, of one module: two may take sizes of other names.

    Raises:
        UsageError: if not.
    """
    if sizes and not measures:
        raise UsageError("--sizes are timed with --measure; give it, or leave --sizes out")
    if sizes and len(modules) > 1:
        raise UsageError("--sizes are timed of one module; make a page for each, or leave --sizes out")


def explorer_files(path: Path | None, modules: Sequence[Path]) -> list[Path]:
    """The file of the graph and that of its times; none if they are not wanted.

    Raises:
        UsageError: if there are two modules.
    """
    if path is None:
        return []
    if len(modules) > 1:
        raise UsageError("--model-explorer writes the graph of one module; leave the other out")
    return [path, path.parent / f"{path.stem}.times{path.suffix}"]


def check_targets(
    targets: Sequence[Path], modules: Sequence[Path], others: Sequence[Path], vs: Path | None, database: Path
) -> None:
    """Make sure that what is written can be, and over nothing that is read.

    Args:
        targets: the page, the graph and its times.
        modules: what the page is about.
        others: further files that are read.
        vs: the model.
        database: of tuning.

    Raises:
        UsageError: if not.
    """
    used = [file for module in modules for file in module_files(module)]
    used += [("a file that is read", path) for path in others]
    used += [("the tuning database", path) for path in database_files(database)]
    options = ("-o", "--model-explorer", "the times for Model Explorer")
    check_apart(dict(zip(options, targets, strict=False)), [*used, *(model_files(vs) if vs else [])])
