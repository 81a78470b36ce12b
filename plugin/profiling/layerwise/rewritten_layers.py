"""Judges the rewritten model by its layers: the reference computes it, and the user's nodes say what is right."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sartor.codegen.ir.graph import LayerGraph
from sartor.errors import CompileError, RewriteError, UnsupportedModelError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.profiling.layerwise.check_job import check_rewritten, tensors_of
from sartor.profiling.layerwise.instrumented import rewritten_results
from sartor.reference.layerwise.layer_check import CheckedLayers
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.calls import begin, call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)
_STEP = "comparing layers of the rewritten model"

Samples = Sequence[Mapping[str, Array]]


def checked_layers(pool: WorkerPool, imported: ImportedModel, graph: LayerGraph, samples: Samples) -> CheckedLayers:
    """Compare the results of some layers on samples.

    Raises:
        RewriteError: if the rewritten model is wrong.
        UnsupportedModelError, UsageError: if it cannot be compared.
        CompileError: if the worker dies.
        DisturbedError: if it was disturbed.
    """
    layers = call(pool, check_rewritten, _job(pool, imported, graph, samples), _STEP)
    _check(layers)
    return layers


@contextmanager
def checking_layers(pool: WorkerPool, imported: ImportedModel, samples: Samples) -> Iterator[None]:
    """Compare the results of all layers beside what the block does.

    What cannot be compared is left to the check of the module, which tells why.

    Raises:
        RewriteError: at the end of the block, if the rewritten model is wrong.
    """
    begun = _begun(pool, imported, samples)
    try:
        yield
    except BaseException:
        if isinstance(begun, Ahead):
            begun.cancel()
        raise
    checked = begun.value() if isinstance(begun, Ahead) else begun
    if isinstance(checked, CheckedLayers):
        _check(checked)
    else:
        reason = checked.error if isinstance(checked, WorkerError) else "its worker ended, or could not begin"
        _LOG.info("%s: layers of the rewritten model are not compared yet: %s", imported.path.name, reason)


def _begun(
    pool: WorkerPool, imported: ImportedModel, samples: Samples
) -> Ahead[CheckedLayers | WorkerError] | WorkerError | None:
    """Begin to compare the results of all layers; an error where that cannot be, None where it should not be now."""
    try:
        return begin(pool, check_rewritten, _job(pool, imported, imported.graph, samples), _STEP)
    except (CompileError, UnsupportedModelError, UsageError) as error:
        return WorkerError(error)


def _job(pool: WorkerPool, imported: ImportedModel, graph: LayerGraph, samples: Samples) -> dict[str, Any]:
    path = imported.path.absolute()
    shown = rewritten_results(imported, graph, call(pool, tensors_of, {"path": path}, _STEP))
    return {
        "path": path,
        "prepared": imported.prepared,
        "claims": {result.tensor: (name, result.claim) for name, result in shown},
        "outputs": [output.name for output in graph.outputs],
        "samples": samples,
        "bound": imported.bound,
    }


def _check(checked: CheckedLayers) -> None:
    """Make sure that nothing is wrong.

    Raises:
        RewriteError: if something is.
    """
    for wrong in checked.wrong[:1]:
        raise RewriteError(
            f"internal: the rewritten model differs from its definition at {wrong.node}, which gives "
            f"'{wrong.tensor}': {wrong.told}; please report it, with the model; --max-error 0.01 compares the outputs "
            "of the network alone"
        )
