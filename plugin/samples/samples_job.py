"""Worker side of reading samples: runs the model on the user's samples."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto

from sartor.errors import SartorError
from sartor.reference.sample_styles import Doubts, dependent_outputs, doubts_of
from sartor.reference.tie_spread import TIE_SAMPLES, tie_spread
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.samples.given_samples import SampleSource
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.workers.calls import WorkerError

_LOG = logging.getLogger(__name__)
_MOST_LOOKED_AT = 8


def doubts_on(prepared: Path | bytes, source: SampleSource) -> Doubts:
    """The doubts about outputs on the user's first samples; none if the model fails on them."""
    model = ModelProto.FromString(prepared if isinstance(prepared, bytes) else prepared.read_bytes())
    names = dependent_outputs(model)
    try:
        reference = OnnxRuntimeReference(prepared)
        found = [reference(feeds) for feeds in itertools.islice(source.since(0), _MOST_LOOKED_AT)]
    except SartorError:
        return Doubts()
    return doubts_of(reference, found, names)


def measured_on_itself(
    prepared: Path | bytes, source: SampleSource, measure: ErrorMeasure
) -> float | WorkerError | None:
    """The error of ONNX Runtime's outputs on the first sample by themselves; None if the model does not run on it.

    So a measure of the user's own that fails is found out before anything is tuned by it.
    """
    try:
        reference, feeds = OnnxRuntimeReference(prepared), next(source.since(0))
        outputs = reference(feeds)
    except SartorError:
        return None
    try:
        return measure.of_sample(outputs, outputs)
    except SartorError as error:
        return WorkerError(error)


def tie_spread_on(path: Path, prepared: Path | bytes, source: SampleSource, bound: Sequence[BoundInput] = ()) -> float:
    """The result of ``tie_spread`` on the user's first samples; 0 if the model fails on them."""
    try:
        return tie_spread(path, prepared, list(itertools.islice(source.since(0), TIE_SAMPLES)), bound)
    except SartorError as error:
        _LOG.warning("what rounding does to the outputs on the samples is not known: %s", error)
        return 0.0
