"""Worker side of the reference: what ONNX Runtime makes of the user's own file, which is not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import SartorError, UnsupportedModelError
from sartor.front_job import Refusal
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.signature import Array
from sartor.tuning.workers import WorkerPool
from sartor.worker_calls import call

_JOB = "sartor.reference_job:reference_outputs"
_STEP = "running ONNX Runtime"
_TIMEOUT = 900.0


@dataclass(frozen=True)
class ReferenceOutputs:
    """What ONNX Runtime computed.

    Attributes:
        arrays: the outputs in the model's order.
        refused: why the models before the one that ran were not loaded, one sentence each.
    """

    arrays: tuple[Array, ...]
    refused: tuple[str, ...] = ()


def run_reference(
    pool: WorkerPool, models: Sequence[Path | bytes], feeds: Mapping[str, Array], threads: int | None
) -> ReferenceOutputs:
    """Run ONNX Runtime on the first of ``models`` that it loads, in a process that serves for nothing else.

    Raises:
        UnsupportedModelError: if it loads none of them.
        UsageError: if it fails on the feeds.
        CompileError: if it crashes, hangs or takes too much memory.
    """
    # Absolute, as workers need not be where the command was called.
    job = {"models": [each if isinstance(each, bytes) else each.resolve() for each in models]}
    with pool.beside() as single:
        found: ReferenceOutputs = call(single, _JOB, {**job, "feeds": feeds, "threads": threads}, _STEP, _TIMEOUT)
    return found


def reference_outputs(
    models: Sequence[Path | bytes], feeds: Mapping[str, Array], threads: int | None
) -> ReferenceOutputs | Refusal:
    """Worker side of ``run_reference``."""
    refused: list[str] = []
    try:
        reference = first_loaded(models, threads, refused)
        outputs = reference(feeds)
    except SartorError as error:
        return Refusal(error)
    return ReferenceOutputs(tuple(outputs), tuple(refused))


def first_loaded(
    models: Sequence[Path | bytes], threads: int | None, refused: list[str] | None = None
) -> OnnxRuntimeReference:
    """ONNX Runtime on the first of the models that it loads; ``refused`` collects why others were not.

    Raises:
        UnsupportedModelError: if it loads none of them.
    """
    *others, last = models
    for model in others:
        try:
            return OnnxRuntimeReference(model, threads=threads)
        except UnsupportedModelError as error:
            if refused is not None:
                refused.append(str(error))
    return OnnxRuntimeReference(last, threads=threads)
