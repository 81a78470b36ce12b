"""Worker side of reading samples: runs the model on the user's samples."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import SartorError
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.reference.sample_styles import NO_DOUBTS, Doubts, dependent_outputs, doubts_of
from sartor.reference.tie_spread import TIE_SAMPLES, tie_spread
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.samples.given_samples import SampleSource
from sartor.samples.odd_samples import Extent, extents, oddities, united
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)
_MOST_LOOKED_AT = 8


@dataclass(frozen=True)
class Look:
    """What the user's first samples show.

    Attributes:
        doubts: about outputs on them.
        count: number of samples that were looked at.
        oddities: what is odd about them, a sentence each.
    """

    doubts: Doubts = NO_DOUBTS
    count: int = 0
    oddities: tuple[str, ...] = ()


def look_at(prepared: Path | bytes, source: SampleSource) -> Look:
    """Look at the user's first samples; nothing is found if the model fails on them."""
    model = prepared_model(prepared)
    names = dependent_outputs(model)
    seen: list[Mapping[str, Extent]] = []
    arrays_of_all: list[list[Array]] = []
    try:
        reference = ReferenceModel(prepared)
        for feeds in itertools.islice(source.since(0), _MOST_LOOKED_AT):
            seen.append(extents(feeds))
            arrays_of_all.append(reference(feeds))
    except SartorError:
        return Look()
    doubts = doubts_of(reference, arrays_of_all, names)
    outputs = {name: [arrays[index] for arrays in arrays_of_all] for index, name in enumerate(reference.output_names)}
    varying = {name: values for name, values in outputs.items() if name in names}
    return Look(doubts, len(arrays_of_all), oddities(united(seen), varying, doubts.unchecked))


def measured_on_itself(
    prepared: Path | bytes, source: SampleSource, measure: ErrorMeasure
) -> float | WorkerError | None:
    """The error of ONNX Runtime's outputs on the first sample by themselves; None if the model does not run on it.

    So a measure of the user's own that fails is found out before anything is tuned by it.
    """
    try:
        reference, feeds = ReferenceModel(prepared), next(source.since(0))
        outputs = reference(feeds)
    except SartorError:
        return None
    try:
        return measure.of_sample(outputs, outputs, names=reference.output_names)
    except SartorError as error:
        return WorkerError(error)


def tie_spread_on(prepared: Path | bytes, source: SampleSource) -> float:
    """The result of ``tie_spread`` on the user's first samples; 0 if the model fails on them."""
    try:
        return tie_spread(prepared, list(itertools.islice(source.since(0), TIE_SAMPLES)))
    except SartorError as error:
        _LOG.warning("what rounding does to the outputs on the samples is not known: %s", error)
        return 0.0
