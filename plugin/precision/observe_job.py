"""Worker side of calibration: ONNX Runtime computes tensors inside the model, and observers take their values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from sartor.errors import SartorError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.samples.given_samples import SampleSource
from sartor.tuning.calibration.methods import Observer
from sartor.tuning.workers.protocol import WorkerError


@dataclass(frozen=True)
class Observed:
    """The state of an observation: the observers, and the index of the next sample."""

    observers: Mapping[str, Observer]
    sample: int

    @property
    def done(self) -> int:
        """Number of observed samples."""
        return self.sample


def observe(
    prepared: Path,
    samples: SampleSource,
    before: Observed,
    threads: int | None,
    seconds: float,
) -> Observed | WorkerError:
    """Pass the tensors' values on further samples to observers, on at least one sample, until time is up.

    Args:
        prepared: file of the prepared model.
        samples: inputs.
        before: the observers by tensor, and the index of the next sample.
        threads: as for ``ReferenceModel``.
        seconds: time after which no further sample is begun.
    """
    try:
        return _observe(prepared, samples, before, threads, time.monotonic() + seconds)
    except SartorError as error:
        return WorkerError(error)


def _observe(prepared: Path, samples: SampleSource, before: Observed, threads: int | None, deadline: float) -> Observed:
    observers = dict(before.observers)
    reference = _reference(prepared, tuple(observers), threads)
    done = before.sample
    for feeds in samples.since(before.sample):
        for name, array in zip(reference.output_names, reference(feeds), strict=True):
            observers[name].observe(array)
        done += 1
        if time.monotonic() >= deadline:
            break
    if done == len(samples):
        _reference.cache_clear()
    return Observed(observers, done)


# Jobs on the same tensors follow each other in one worker, and share the session. The last job frees it.
@lru_cache(maxsize=1)
def _reference(prepared: Path, tensors: tuple[str, ...], threads: int | None) -> ReferenceModel:
    model = prepared_model(prepared)
    show_only(model, tensors)
    return ReferenceModel(model.SerializeToString(), threads=threads, cuts=False)


def show_only(model: ModelProto, tensors: Sequence[str]) -> None:
    """Make tensors inside a model its only outputs, in place, and remove nodes that they do not need."""
    editor = GraphEditor(model.graph)
    outputs = [ValueInfoProto(name=name, type=editor.type(name)) for name in tensors]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    drop_unused(model)
