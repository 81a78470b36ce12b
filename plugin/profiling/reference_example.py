"""What ONNX Runtime computes on the first sample, with which every build of a network is compared."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from sartor.errors import CompileError, DisturbedError, ReferenceFailedError, UnsupportedModelError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.progress import Progress
from sartor.reference.kept_outputs import keep_outputs, kept_outputs
from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.profile_job import Example
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)


class ReferenceExample:
    """The first sample with the outputs of ONNX Runtime, computed once for all builds.

    Args:
        imported: the model.
        samples: inputs.
        pool: workers.
        progress: told when ONNX Runtime runs.
        threads: of ONNX Runtime.
        narrow: how coarse the scales of slices of outputs are.
        kept: the outputs of earlier compilations; None if none are to be used.
    """

    def __init__(
        self,
        imported: ImportedModel,
        samples: SampleSet,
        pool: WorkerPool,
        progress: Progress,
        threads: int,
        *,
        narrow: bool,
        kept: KeptValues | None = None,
    ) -> None:
        self._imported = imported
        self._samples = samples
        self._pool = pool
        self._progress = progress
        self._threads = threads
        self._narrow = narrow
        self._is_told = False
        self._described, self._unvouched = "", tuple[str, ...]()
        self._kept = kept
        self._ahead: Ahead[ReferenceOutputs | WorkerError] | None = None

    @property
    def described(self) -> str:
        """Who computed what modules were compared with, as messages say it; empty before it ran."""
        return self._described

    @property
    def unvouched(self) -> tuple[str, ...]:
        """Why nobody but the rewritten model vouches for modules, one sentence each; empty if that is not so."""
        return self._unvouched

    def begin_ahead(self) -> None:
        """Begin to compute the outputs beside what the pool does, unless an earlier compilation did: every one needs
        them."""
        if self._found is None:
            self._ahead = self._reference.begin(self._pool)

    def begin(self) -> None:
        """Compute the outputs, while no worker is busy, unless that goes on beside them.

        Raises:
            ReferenceFailedError: if ONNX Runtime crashes or hangs.
        """
        if self._ahead is None:
            _ = self.value

    @property
    def known(self) -> Example | None:
        """The sample with its outputs, if these are known or being computed.

        Raises:
            ReferenceFailedError: if ONNX Runtime crashes or hangs.
        """
        return self.value if self._ahead is not None or self._found or "value" in vars(self) else None

    @property
    def _reference(self) -> ReferenceRun:
        """ONNX Runtime on the first sample: on the user's file, or if it does not load that, on the prepared model."""
        models, bound = (self._imported.path, self._imported.prepared), self._imported.bound
        return ReferenceRun(models, models[-1], self._samples.first, self._threads, self._narrow, bound)

    @functools.cached_property
    def value(self) -> Example:
        """The sample with ONNX Runtime's outputs on the user's original file.

        Raises:
            ReferenceFailedError: if ONNX Runtime crashes or hangs.
        """
        outputs = self._outputs
        self.tell(outputs.refused, outputs.described)
        return Example(self._samples.first, outputs.arrays, outputs.scales)

    @functools.cached_property
    def _outputs(self) -> ReferenceOutputs:
        begun = self._found if self._ahead is None else self._ahead.value()
        # What failed is computed again, where its error is told.
        return begun if isinstance(begun, ReferenceOutputs) else self._reference_outputs()

    @functools.cached_property
    def _found(self) -> ReferenceOutputs | None:
        """The outputs that an earlier compilation computed, of the same file by the same code."""
        origin = self._imported.origin
        if self._kept is None or origin is None or not origin.found:
            return None
        return kept_outputs(self._kept, origin.found, self._reference)

    def keep(self, key: str) -> None:
        """Keep the outputs for later compilations of the model whose import has that key."""
        if self._kept is not None and self._found is None and "_outputs" in vars(self):
            keep_outputs(self._kept, key, self._reference, self._outputs)

    def _reference_outputs(self) -> ReferenceOutputs:
        self._progress("running ONNX Runtime", 0, 1)
        try:
            return self._reference.outputs(self._pool)
        except UsageError as error:
            if self._samples.are_given:
                raise
            raise UnsupportedModelError(
                f"{error}; give inputs that the model takes with --calibration, or export it again"
            ) from None
        except DisturbedError:
            raise
        except CompileError as error:
            raise self.failed(error) from None

    def failed(self, error: CompileError) -> ReferenceFailedError:
        """What to raise if ONNX Runtime ended with ``error``."""
        name = self._imported.path.name
        return ReferenceFailedError(
            f"ONNX Runtime, whose results every module is compared with, fails on '{name}': {error}"
        )

    def tell(self, refused: Sequence[str], described: str) -> None:
        """Note what modules were compared with, and warn, once, of the reasons why it is not the user's file.

        Args:
            refused: the reasons, one sentence each.
            described: who computed it; empty if that is not known yet.
        """
        self._described = described or self._described
        for reason in refused if not self._is_told else ():
            _LOG.warning(
                "%s: %s; it is NOT checked against an independent reference, but with the rewritten model alone, whose "
                "errors no check finds",
                self._imported.path.name,
                reason,
            )
            self._unvouched = (*self._unvouched, reason)
        self._is_told = self._is_told or bool(refused)
