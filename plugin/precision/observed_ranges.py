"""Finds the ranges of tensors inside a model from their values on samples, in ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.precision.observe_job import Observed, observe
from sartor.progress import Progress, silent
from sartor.samples.given_samples import SampleSource
from sartor.tuning.calibration.observer import Observer
from sartor.tuning.workers.calls import as_file, call_until_done
from sartor.tuning.workers.pool import WorkerPool

CHUNK_BYTES = 256 << 20
_STEP = "calibrating"
_OBSERVABLE = ("float16", "float32", "float64")


def observed_ranges(
    prepared: bytes | Path,
    tensors: Iterable[str],
    samples: SampleSource,
    pool: WorkerPool,
    observer: Callable[[], Observer],
    *,
    threads: int | None = None,
    progress: Progress = silent,
    chunk_bytes: int = CHUNK_BYTES,
) -> dict[str, tuple[float, float]]:
    """The lowest and the highest number that the 8-bit range of each tensor must represent, by tensor.

    Args:
        prepared: the prepared model, or the file that holds it.
        tensors: names in the model; tensors of other than floating-point types have no range and are left out.
        samples: inputs, with one array per input of the model.
        pool: where ONNX Runtime runs: the model is not trusted.
        observer: makes an observer for each tensor.
        threads: as for ``OnnxRuntimeReference``.
        progress: told how many samples have been run.
        chunk_bytes: limit on the values of tensors that are observed in one run.

    Raises:
        UsageError: if the samples cannot be read, or the model fails on them.
        CompileError: if the worker dies.
    """
    found: dict[str, tuple[float, float]] = {}
    with as_file(prepared) as path:
        chunks = _chunks(ModelProto.FromString(path.read_bytes()), tensors, chunk_bytes)
        total = len(chunks) * len(samples)
        for number, chunk in enumerate(chunks):
            job = {"prepared": path, "samples": samples, "threads": threads}
            seen = Observed({name: observer() for name in chunk}, 0)
            tell = partial(_tell, progress, number * len(samples), total)
            seen = call_until_done(pool, observe, job, seen, len(samples), _STEP, progress=tell)
            found |= {name: each.range() for name, each in seen.observers.items()}
        progress(_STEP, total, total)
    return found


def _tell(progress: Progress, before: int, total: int, step: str, done: int, _: int) -> None:
    """Report the progress of all chunks together: one has ``done`` samples, ``before`` were done by earlier chunks."""
    progress(step, before + done, total)


def _chunks(model: ModelProto, tensors: Iterable[str], limit: int) -> list[list[str]]:
    """The tensors that can be observed, in the model's order, in groups that fit into ``limit`` bytes.

    Neighbours in that order share a group, so that nodes after the last tensor of a group need not be computed.
    """
    wanted, editor = set(tensors), GraphEditor(model.graph)
    computed = [name for node in model.graph.node for name in node.output]
    chunks: list[list[str]] = []
    left = 0
    for name in [*(each.name for each in model.graph.input), *computed]:
        if name not in wanted or _dtype(editor, name).name not in _OBSERVABLE:
            continue
        shape = editor.shape(name)
        size = limit if shape is None else _dtype(editor, name).itemsize * math.prod(shape)
        if size > left or not chunks:
            chunks.append([])
            left = limit
        chunks[-1].append(name)
        left -= size
    return chunks


def _dtype(editor: GraphEditor, name: str) -> np.dtype[np.generic]:
    element = editor.element_type(name)
    return np.dtype(helper.tensor_dtype_to_np_dtype(element)) if element else np.dtype(bool)
