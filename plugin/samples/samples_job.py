"""Worker side of reading samples: runs the model on the user's samples."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from onnx import ModelProto

from sartor.errors import SartorError
from sartor.reference.sample_styles import dependent_outputs, says_nothing
from sartor.reference.tie_spread import TIE_SAMPLES, tie_spread
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.samples.given_samples import SampleSource

_LOG = logging.getLogger(__name__)
_MOST_LOOKED_AT = 8


def unchecked_outputs(prepared: Path | bytes, source: SampleSource) -> tuple[str, ...]:
    """Outputs that cannot be checked on the user's first samples; empty if the model fails on them."""
    model = ModelProto.FromString(prepared if isinstance(prepared, bytes) else prepared.read_bytes())
    names = dependent_outputs(model)
    try:
        reference = OnnxRuntimeReference(prepared)
        found = [reference(feeds) for feeds in itertools.islice(source.since(0), _MOST_LOOKED_AT)]
    except SartorError:
        return ()
    wanted = [index for index, name in enumerate(reference.output_names) if name in names]
    return tuple(reference.output_names[index] for index in wanted if says_nothing([each[index] for each in found]))


def tie_spread_on(path: Path, prepared: Path | bytes, source: SampleSource) -> float:
    """The result of ``tie_spread`` on the user's first samples; 0 if the model fails on them."""
    try:
        return tie_spread(path, prepared, list(itertools.islice(source.since(0), TIE_SAMPLES)))
    except SartorError as error:
        _LOG.warning("what rounding does to the outputs on the samples is not known: %s", error)
        return 0.0
