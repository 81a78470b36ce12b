"""Worker side of the reference: runs ONNX Runtime on the user's file, which is untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import SartorError
from sartor.reference.expected_outputs import Expectation
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import Array
from sartor.tuning.kept.heard_warnings import HeardWarnings
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.calls import begin, call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_STEP = "running ONNX Runtime"


@dataclass(frozen=True)
class ReferenceOutputs:
    """The results of ONNX Runtime.

    Attributes:
        arrays: the outputs in the model's order.
        scales: for each output the scales by which differences of its elements are divided (``scales_of``).
        refused: the reasons why earlier models were not loaded, one sentence each.
        described: who computed them, as messages say it.
        has_warned: whether something was said that the user should hear, which is not said of kept ones.
    """

    arrays: tuple[Array, ...]
    scales: tuple[Array, ...]
    refused: tuple[str, ...] = ()
    described: str = ""
    has_warned: bool = False


@dataclass(frozen=True)
class ReferenceRun:
    """A run of ONNX Runtime on the first of some models that it can load, in a separate process.

    Attributes:
        models: files or bytes.
        prepared, threads, narrow, bound: as for ``Expectation``.
        feeds: inputs by name.
    """

    models: Sequence[Path | bytes]
    prepared: Path | bytes
    feeds: Mapping[str, Array]
    threads: int | None
    narrow: bool
    bound: Sequence[BoundInput] = ()

    def outputs(self, pool: WorkerPool) -> ReferenceOutputs:
        """Run it.

        Raises:
            UnsupportedModelError: if it can load none of the models.
            UsageError: if it fails on the feeds.
            CompileError: if it crashes, hangs or runs out of memory.
        """
        with pool.beside() as single:
            return call(single, reference_outputs, self._job, _STEP)

    def begin(self, pool: WorkerPool) -> Ahead[ReferenceOutputs | WorkerError] | None:
        """Begin to run it beside what the pool does; None if that should not begin now."""
        return begin(pool, reference_outputs, self._job, _STEP)

    @property
    def _job(self) -> dict[str, Any]:
        """The arguments of ``reference_outputs``, with absolute paths, as workers may have another directory."""
        absolute = {"models": [_absolute(model) for model in self.models], "prepared": _absolute(self.prepared)}
        others = {"feeds": self.feeds, "threads": self.threads, "narrow": self.narrow, "bound": self.bound}
        return {**absolute, **others}


def _absolute(model: Path | bytes) -> Path | bytes:
    return model if isinstance(model, bytes) else model.resolve()


def reference_outputs(
    models: Sequence[Path | bytes],
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    threads: int | None,
    *,
    narrow: bool,
    bound: Sequence[BoundInput] = (),
) -> ReferenceOutputs | WorkerError:
    """Worker side of ``ReferenceRun``."""
    try:
        with HeardWarnings() as warnings:
            expectation = Expectation(models, prepared, threads=threads, narrow=narrow, bound=bound)
            expected = expectation(feeds)
    except SartorError as error:
        return WorkerError(error)
    refused, described = tuple(expectation.refused), expectation.described
    outputs, scales = tuple(expected.outputs), tuple(expected.scales)
    return ReferenceOutputs(outputs, scales, refused, described, warnings.has_heard)
