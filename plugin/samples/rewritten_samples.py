"""Checking a model's rewrites on its samples, before anything is measured."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from sartor.frontend.imported_model import ImportedModel
from sartor.reference.vouching.rewrite_check import Checked, checked_rewrites
from sartor.samples.sample_sets import sample_set
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.calls import begin, call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)
_STEP = "checking rewrites"
# Samples of the user's that are run; of drawn ones, one of each style.
_MOST = 2
_NOTHING = "rounding moves its outputs by more than any bound; they are compared later, as layers of modules are"


@dataclass
class RewriteCheck:
    """A comparison of the prepared model with the user's file, if definitions of operators have to vouch for it.

    Attributes:
        pool: workers.
        imported: the model.
        given: the user's samples; None for drawn ones.
    """

    pool: WorkerPool
    imported: ImportedModel
    given: Path | None
    _begun: Ahead[Checked | WorkerError] | None = None
    _is_done: bool = False

    def begin(self) -> None:
        """Begin it beside what the pool does, if that disturbs nothing."""
        if self.imported.has_definitions:
            self._begun = begin(self.pool, checked_rewrites, self._job, _STEP)

    def finish(self) -> None:
        """Wait for its end, or do it now; once.

        Raises:
            RewriteError: if they differ by more than rounding explains.
            UsageError: if the samples do not fit the model, or cannot be read.
            CompileError: if the worker dies.
        """
        if self._is_done or not self.imported.has_definitions:
            return
        self._is_done = True
        result = None if self._begun is None else self._begun.value()
        if isinstance(result, WorkerError):
            raise result.error
        # What was disturbed or died is tried again, where that is told.
        checked = result if result is not None else call(self.pool, checked_rewrites, self._job, _STEP)
        nothing = () if checked.is_compared else (_NOTHING,)
        for reason in checked.reasons or nothing:
            name = self.imported.path.name
            _LOG.warning("%s: rewrites of its nodes are not checked before it is tuned: %s", name, reason)

    @cached_property
    def _job(self) -> dict[str, Any]:
        imported = self.imported
        samples = list(islice(sample_set(imported, self.given, narrow=False).source.since(0), _MOST))
        models = {"path": imported.path.absolute(), "prepared": imported.prepared, "bound": imported.bound}
        return {**models, "samples": samples, "tie_spread": imported.tie_spread}


def check_rewrites(pool: WorkerPool, imported: ImportedModel, given: Path | None) -> None:
    """Compare the prepared model with the user's file, as ``RewriteCheck``.

    Raises:
        RewriteError, UsageError, CompileError: as ``RewriteCheck.finish``.
    """
    RewriteCheck(pool, imported, given).finish()
