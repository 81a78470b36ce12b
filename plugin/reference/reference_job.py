"""Worker side of the reference: what ONNX Runtime makes of the user's own file, which is not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import SartorError
from sartor.reference.expected_outputs import Expectation
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.calls import WorkerError, call
from sartor.tuning.workers.pool import WorkerPool

_STEP = "running ONNX Runtime"


@dataclass(frozen=True)
class ReferenceOutputs:
    """What ONNX Runtime computed.

    Attributes:
        arrays: the outputs in the model's order.
        scales: for each output, by element, what a difference is divided by (``scales_of``).
        refused: why the models before the one that ran were not loaded, one sentence each.
    """

    arrays: tuple[Array, ...]
    scales: tuple[Array, ...]
    refused: tuple[str, ...] = ()


def run_reference(
    pool: WorkerPool,
    models: Sequence[Path | bytes],
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    threads: int | None,
    *,
    narrow: bool,
) -> ReferenceOutputs:
    """Run ONNX Runtime on the first of ``models`` that it loads, in a process that serves for nothing else.

    ``prepared`` and ``narrow`` are as for ``Expectation``.

    Raises:
        UnsupportedModelError: if it loads none of them.
        UsageError: if it fails on the feeds.
        CompileError: if it crashes, hangs or takes too much memory.
    """
    # Absolute, as workers need not be where the command was called.
    job: dict[str, Any] = {"models": [_absolute(each) for each in models], "prepared": _absolute(prepared)}
    job |= {"feeds": feeds, "threads": threads, "narrow": narrow}
    with pool.beside() as single:
        return call(single, reference_outputs, job, _STEP)


def _absolute(model: Path | bytes) -> Path | bytes:
    return model if isinstance(model, bytes) else model.resolve()


def reference_outputs(
    models: Sequence[Path | bytes],
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    threads: int | None,
    *,
    narrow: bool,
) -> ReferenceOutputs | WorkerError:
    """Worker side of ``run_reference``."""
    try:
        expectation = Expectation(models, prepared, threads=threads, narrow=narrow)
        expected = expectation(feeds)
    except SartorError as error:
        return WorkerError(error)
    return ReferenceOutputs(tuple(expected.outputs), tuple(expected.scales), tuple(expectation.refused))
