"""Checking a model's rewrites on its samples, before anything is measured."""

from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path

from sartor.frontend.imported_model import ImportedModel
from sartor.reference.vouching.rewrite_check import checked_rewrites
from sartor.samples.sample_sets import sample_set
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_STEP = "checking rewrites"
# Samples of the user's that are run; of drawn ones, one of each style.
_MOST = 2
_NOTHING = "rounding moves its outputs by more than any bound; they are compared later, as layers of modules are"


def check_rewrites(pool: WorkerPool, imported: ImportedModel, given: Path | None) -> None:
    """Compare the prepared model with the user's file, in a worker, if definitions of operators have to vouch for it.

    Args:
        pool: workers.
        imported: the model.
        given: the user's samples; None for drawn ones.

    Raises:
        RewriteError: if they differ by more than rounding explains.
        UsageError: if the samples do not fit the model, or cannot be read.
        CompileError: if the worker dies.
    """
    if not imported.has_definitions:
        return
    source = sample_set(imported, given, narrow=False).source
    samples = list(islice(source.since(0), _MOST))
    models = {"path": imported.path.absolute(), "prepared": imported.prepared, "bound": imported.bound}
    job = {**models, "samples": samples, "tie_spread": imported.tie_spread}
    found = call(pool, checked_rewrites, job, _STEP)
    nothing = () if found.is_compared else (_NOTHING,)
    for reason in found.reasons or nothing:
        _LOG.warning("%s: rewrites of its nodes are not checked before it is tuned: %s", imported.path.name, reason)
