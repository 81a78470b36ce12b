"""Checks a compilation's samples in a worker, and warns of outputs that cannot be checked on them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from sartor.frontend.imported_model import ImportedModel
from sartor.samples.sample_sets import SampleSet, sample_set
from sartor.samples.samples_job import tie_spread_on, unchecked_outputs
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_STEP = "running the model on samples"
# A bound above this relative error may hide a defect, so the user is warned.
_MUCH_BY_TIES = 0.1


def checked_samples(imported: ImportedModel, given: Path | None, pool: WorkerPool, *, narrow: bool) -> SampleSet:
    """The samples, with the outputs that cannot be checked on them, of which the user is warned.

    Args:
        imported: the model.
        given: the user's file or directory, or None.
        pool: where ONNX Runtime runs.
        narrow: whether layers may compute in narrower types than the model.

    Raises:
        UsageError: if the samples do not fit the model, or cannot be read.
        CompileError: if the worker dies.
    """
    samples = sample_set(imported, given, narrow=narrow)
    if given is not None:
        job = {"prepared": imported.prepared, "source": samples.source}
        samples = replace(samples, unchecked=call(pool, unchecked_outputs, job, _STEP))
        if imported.is_rounding:
            samples = replace(samples, tie_spread=call(pool, tie_spread_on, {"path": imported.path, **job}, _STEP))
    if samples.tie_spread > _MUCH_BY_TIES:
        _LOG.warning(
            "the model rounds to integers so often that a number next to a tie moves an output by up to %.0f%%: "
            "errors up to that cannot be told from it",
            100 * samples.tie_spread,
        )
    for name in samples.unchecked:
        _LOG.warning(
            "output '%s' is not checked: on all samples it is constant, saturated or no number; "
            "give samples of what the network will see with --calibration",
            name,
        )
    return samples
