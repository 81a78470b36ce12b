"""The files of a compilation: checked before it begins, and staged if they are right."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sartor.config import CompileConfig
from sartor.dialect_passes.dump import is_dumped, linked_stage
from sartor.errors import UsageError
from sartor.onnx_model.reading.read_apart import external_files
from sartor.planning.recipe import Recipe
from sartor.profiling.refinement import Refined
from sartor.profiling.refiner import Refiner
from sartor.publishing import check_apart
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status

_LOG = logging.getLogger(__name__)


def check_files(
    model: Path, output: Path, config: CompileConfig, others: Mapping[str, Path], external: Iterable[Path] = ()
) -> None:
    """Check that outputs can be written, and that none is a file that is used or another output.

    Args:
        model: ONNX file.
        output: path of the .vmfb.
        config: settings, which name the file of external weights.
        others: what else is written, by the option that names it.
        external: the model's files of external data. Stages are written while it is imported, so that where these
            are wanted, the files are found here.

    Raises:
        UsageError: if two files coincide, or an output cannot be written.
        UnsupportedModelError: if stages are wanted, and the model is none.
    """
    check_beside(output, config.external_weights)
    outputs = {"the output": output}
    if config.external_weights is not None:
        outputs["the external weights"] = config.external_weights
    outputs |= others
    if config.dump_directory is not None:
        external = external_files(model)
    read = [("the model", model), *(("weights of the model", path) for path in external)]
    used = [*read, *config.used_files(outputs.values())]
    check_apart(outputs, used)
    if config.dump_directory is not None:
        check_dumps(config.dump_directory, [*used, *outputs.items()])


def check_dumps(directory: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Make the folder of ``--dump-dir``, whose files have names that are none of the compilation's other files.

    Args:
        directory: the folder, which need not be there.
        files: what each other file is, in words, and the file.

    Raises:
        UsageError: if a stage would be written over one of them or through a link, or the folder cannot be made.
    """
    listed = [*files]
    for what, path in listed:
        if os.path.realpath(path) == os.path.realpath(directory):
            raise UsageError(f"--dump-dir '{directory}' is {what}, too; name another folder")
    _make_folder(directory)
    for what, path in listed:
        if is_dumped(path, directory):
            raise UsageError(f"--dump-dir '{directory}' would write over {what}, '{path}'; name another folder")
    if (link := linked_stage(directory)) is not None:
        raise UsageError(f"--dump-dir '{directory}' would write through the link '{link}'; name another folder")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--dump-dir '{path}' cannot be made: {error.strerror}") from None


def check_beside(output: Path, weights: Path | None) -> None:
    """Make sure that external weights lie beside the module.

    Raises:
        UsageError: if they do not.
    """
    # Links may loop, which ``Path.resolve`` takes for an error of the program.
    folders = [os.path.dirname(os.path.realpath(path)) for path in (output, weights) if path is not None]
    if len({*folders}) > 1:
        raise UsageError(
            f"external weights '{weights}' must lie in the folder of '{output}', which looks for them there"
        )


def publish_best(refined: Refined, refiner: Refiner, publish: Callable[[Recipe], NetRun]) -> tuple[Refined, NetRun]:
    """Stage the best network whose file passes the check; returns it with the run of that file.

    ``publish`` builds a recipe's file, checks it and stages it if it is right. A file that fails replaces
    the stored run of its recipe, and the next best network is built.

    Raises:
        CompileError: if no network is right.
        LimitError: if the right ones take too much memory, or none keeps the user's error bound.
    """
    while True:
        run = publish(refined.recipe)
        if run.status is Status.OK:
            return refined, run
        _LOG.warning("the best plan is not what it was measured as (%s); the next best is built", run.message)
        refiner.profiler.contradict(refined.recipe, run)
        refined = refiner.next_best(refined)
