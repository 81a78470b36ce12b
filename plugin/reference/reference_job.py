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
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.calls import WorkerError, begin, call
from sartor.tuning.workers.pool import WorkerPool

_STEP = "running ONNX Runtime"


@dataclass(frozen=True)
class ReferenceOutputs:
    """The results of ONNX Runtime.

    Attributes:
        arrays: the outputs in the model's order.
        scales: for each output the scales by which differences of its elements are divided (``scales_of``).
        refused: the reasons why earlier models were not loaded, one sentence each.
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
    bound: Sequence[BoundInput] = (),
) -> ReferenceOutputs:
    """Run ONNX Runtime on the first of ``models`` that it can load, in a separate process.

    ``prepared``, ``narrow`` and ``bound`` are as for ``Expectation``.

    Raises:
        UnsupportedModelError: if it can load none of them.
        UsageError: if it fails on the feeds.
        CompileError: if it crashes, hangs or runs out of memory.
    """
    job = _job(models, prepared, feeds, threads, narrow=narrow, bound=bound)
    with pool.beside() as single:
        return call(single, reference_outputs, job, _STEP)


def begin_reference(
    pool: WorkerPool,
    models: Sequence[Path | bytes],
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    threads: int | None,
    *,
    narrow: bool,
    bound: Sequence[BoundInput] = (),
) -> Ahead[ReferenceOutputs | WorkerError] | None:
    """Begin what ``run_reference`` does, beside what the pool does; None if that should not begin now."""
    job = _job(models, prepared, feeds, threads, narrow=narrow, bound=bound)
    return begin(pool, reference_outputs, job, _STEP)


def _job(
    models: Sequence[Path | bytes],
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    threads: int | None,
    *,
    narrow: bool,
    bound: Sequence[BoundInput],
) -> dict[str, Any]:
    """The arguments of ``reference_outputs``, with absolute paths, as workers may have another working directory."""
    absolute = [_absolute(each) for each in models]
    known = {"models": absolute, "prepared": _absolute(prepared), "feeds": feeds}
    return {**known, "threads": threads, "narrow": narrow, "bound": bound}


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
    """Worker side of ``run_reference``."""
    try:
        expectation = Expectation(models, prepared, threads=threads, narrow=narrow, bound=bound)
        expected = expectation(feeds)
    except SartorError as error:
        return WorkerError(error)
    return ReferenceOutputs(tuple(expected.outputs), tuple(expected.scales), tuple(expectation.refused))
