"""Opening a compilation: workers that know the target, and the model as layers, made in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.frontend.import_job import run_front
from sartor.frontend.imported_model import Front
from sartor.frontend.target_check import check_target
from sartor.progress import Progress
from sartor.tuning.workers.calls import call, open_pool
from sartor.tuning.workers.pool import WorkerPool


@contextmanager
def open_workers(config: CompileConfig) -> Iterator[WorkerPool]:
    """Workers that cannot eat the machine, for a target that the compiler knows.

    Raises:
        UsageError: if it does not know the target.
    """
    with open_workspace(config) as (pool, _):
        yield pool


@contextmanager
def open_workspace(config: CompileConfig) -> Iterator[tuple[WorkerPool, Path]]:
    """Workers, and a directory for what they compile; both gone at the end, with all temporary files of the workers.

    Raises:
        UsageError: as ``open_workers``.
    """
    with open_pool(config.jobs) as (pool, directory):
        check_target(config.target, pool)
        yield pool, directory


def load_front(
    model: Path, config: CompileConfig, pool: WorkerPool, progress: Progress, directory: Path | None = None
) -> Front:
    """The model as layers, made in a worker: the file is not trusted. What is large goes to ``directory``, if given."""
    progress("importing", 0, 1)
    job = {"path": model, "shapes": dict(config.shapes), "dump": config.dump_directory, "directory": directory}
    job["target"] = config.target
    front = call(pool, run_front, job, f"importing '{model}'")
    _check_pins(front, config)
    return front


def _check_pins(front: Front, config: CompileConfig) -> None:
    """A pin that fits no layer is a mistake, and no wish to be ignored."""
    for pin in config.pins:
        if not any(fnmatchcase(layer.name, pin.layers) for layer in front.graph.all_layers()):
            names = ", ".join(layer.name for layer in front.graph.layers[:5])
            raise UsageError(f"no layer is called '{pin.layers}' as a pin wants; the layers are {names}, …")
