"""Begins a compilation: starts workers, and imports the model as layers in one of them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import load_dialects
from sartor.codegen.mlir.machine import take_answers
from sartor.codegen.source_digest import source_digest
from sartor.errors import UsageError
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.target_check import check_target
from sartor.policies import Double, ImportPolicy
from sartor.progress import Progress
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.calls import Opening, call_each, open_pool
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.sharing import machine_turns

_LOG = logging.getLogger(__name__)
_MOST_LISTED = 5
# With all that it imports, this is the source that stored results depend on; it is read and parsed once.
_DIGESTED = "sartor.profiling.network_records"


@contextmanager
def open_workers(target: Target, jobs: int) -> Iterator[WorkerPool]:
    """Workers with a limit on memory, after a check that the compiler knows the target.

    Raises:
        UsageError: if the compiler does not know the target.
    """
    with open_workspace(target, jobs) as (pool, _):
        yield pool


@contextmanager
def open_workspace(
    target: Target, jobs: int, opening: Opening | None = None, end: float = math.inf
) -> Iterator[tuple[WorkerPool, Path]]:
    """Workers and a directory for modules; leaving the context ends them and removes all their temporary files.

    Args:
        target: what is compiled.
        jobs: number of processes here.
        opening: as for ``open_pool``.
        end: when waiting for other compilations ends, by ``time.monotonic()``.

    Raises:
        UsageError: as ``open_workers``.
    """
    turns = machine_turns()
    with turns.awaited_until(end), open_pool(jobs, turns, opening) as (pool, directory):
        check_target(target, pool)
        yield pool, directory


def import_network(
    model: Path,
    policy: ImportPolicy,
    pool: WorkerPool,
    progress: Progress,
    directory: Path | None = None,
    end: float = math.inf,
) -> ImportedModel:
    """Import a model in a worker, as the file is not trusted.

    Args:
        model: ONNX file.
        policy: settings.
        pool: workers.
        progress: told about it.
        directory: for large data; None keeps it in memory.
        end: when the compilation should end, by ``time.monotonic()``.

    Raises:
        UnsupportedModelError: if it cannot be imported.
        ReferenceFailedError: if one inference by ONNX Runtime takes too long for any module to be compared with it.
        UsageError: if an option names what the model does not have.
    """
    return import_networks(model, [(policy, directory)], pool, progress, end)[0]


def import_networks(
    model: Path,
    settings: Sequence[tuple[ImportPolicy, Path | None]],
    pool: WorkerPool,
    progress: Progress,
    end: float = math.inf,
) -> list[ImportedModel]:
    """As ``import_network``, with several settings for the same target, each with a directory of its own, at once."""
    progress("importing", 0, 1)
    jobs = [_job(model, policy, directory, end) for policy, directory in settings]
    first, _ = settings[0]
    with ThreadPoolExecutor(1) as beside:
        # Whether it fails is seen where it is needed.
        beside.submit(_get_ready)
        networks = call_each(pool, run_import, jobs, f"importing '{model}'")
    take_answers(networks[0].machines)
    for name in networks[0].nan_weights:
        _LOG.warning("the weight '%s' holds NaN; export the model again if that is not meant", name)
    for imported, (policy, _) in zip(networks, settings, strict=True):
        if policy.has_layers:
            _check_pins(imported, policy.pins)
    ends = (*networks[0].graph.inputs, *networks[0].graph.outputs)
    passed = [value.name for value in ends if value.dtype == "float64"]
    if passed and first.double is Double.F32:
        _LOG.warning(
            "'%s' is passed as float64 and computed in float32, with its seven digits and its range; --double f64 "
            "computes in float64, by IREE's own code",
            passed[0],
        )
    return networks


def _job(model: Path, policy: ImportPolicy, directory: Path | None, end: float) -> dict[str, object]:
    """Arguments of ``run_import``."""
    return {
        "path": model,
        "shapes": dict(policy.shapes),
        "dump": policy.dump_directory,
        "directory": directory,
        "target": policy.target,
        "bindings": dict(policy.bindings),
        "asked": AskedChildren(policy.pins, frozenset(policy.named)),
        "exponents": dict(policy.exponents),
        "seconds": max(0.0, end - time.monotonic()),
        "double": policy.double,
        "states": policy.states,
        "simplifies": policy.simplifies,
        "is_open": policy.is_open,
        "has_layers": policy.has_layers,
        "kept": KeptValues.of_imports(),
    }


def _get_ready() -> None:
    """What this process needs next, and can be had while another imports the model."""
    load_dialects()
    source_digest(_DIGESTED)


def _check_pins(imported: ImportedModel, pins: Sequence[Pin]) -> None:
    """Raise UsageError for a pin that matches no layer, which is a mistake."""
    for pin in pins:
        if not any(fnmatchcase(layer.name, pin.layers) for layer in imported.graph.all_layers()):
            known = _listed([layer.name for layer in imported.graph.layers])
            raise UsageError(f"no layer is called '{pin.layers}' as a pin wants; {known}")


def _listed(layers: Sequence[str]) -> str:
    if not layers:
        return "the model has no layers"
    more = ", …" if len(layers) > _MOST_LISTED else ""
    return f"the layers are {', '.join(layers[:_MOST_LISTED])}{more}"
