"""Checks a compilation's samples in a worker, and warns of odd ones, and of outputs that cannot be checked on them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.onnx_model.dynamic.cut_length import LENGTH
from sartor.reference.sample_styles import Doubts
from sartor.samples.sample_sets import SampleSet, sample_set
from sartor.samples.samples_job import Look, look_at, measured_on_itself, tie_spread_on
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import MeasureKind
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_STEP = "running the model on samples"


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
        look = call(pool, look_at, job, _STEP)
        _warn_of_oddities(look, len(samples))
        samples = replace(samples, doubts=look.doubts)
        if imported.is_rounding:
            samples = replace(samples, tie_spread=call(pool, tie_spread_on, job, _STEP))
    _warn(samples.doubts)
    return samples


def _warn(doubts: Doubts) -> None:
    # A length is one number on each sample; calls of the whole file check it.
    for name in (output for output in doubts.unchecked if output != LENGTH):
        _LOG.warning(
            "output '%s' is not checked: on all samples it is constant, empty, saturated or no number; "
            "give samples of what the network will see with --calibration",
            name,
        )
    for name in (output for output in doubts.not_finite if output not in doubts.unchecked):
        _LOG.warning(
            "output '%s' holds NaN or infinities on the samples: of these it is only checked that the module has them",
            name,
        )


def _warn_of_oddities(look: Look, total: int) -> None:
    where = "in the samples" if look.count == total else f"in the first {look.count} samples"
    for oddity in look.oddities:
        _LOG.warning(
            "%s %s: ranges for 8 bits and errors hold for nothing else; "
            "give samples of what the network will see with --calibration",
            oddity,
            where,
        )


def check_measure(imported: ImportedModel, samples: SampleSet, pool: WorkerPool, budget: ErrorBudget) -> None:
    """Try a measure on outputs that are right, before anything is tuned by it: one of the user's own, or one that is
    not for all models.

    Raises:
        UsageError: if it fails, or no module could be right by it.
        CompileError: if the worker dies.
    """
    if budget.measure.kind not in (MeasureKind.USER, MeasureKind.TOKENS):
        return
    job = {"prepared": imported.prepared, "source": samples.source, "measure": budget.measure}
    error = call(pool, measured_on_itself, job, "trying the error measure")
    if error is not None and error > budget.allowed:
        raise UsageError(
            f"the error measure '{budget.measure}' returned {error:g} for outputs that are as expected, where "
            f"{budget.allowed:g} is allowed: it has to return 0 for these, and more for what is wrong"
        )
