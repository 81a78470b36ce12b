"""Worker side of ``sartor bench``: the errors of what is timed, as others compute some models less exactly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sartor.errors import SartorError
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error, scales_of

_LOG = logging.getLogger(__name__)


def errors_of(
    runs: Mapping[str, Callable[[], Sequence[Array]]], model: Path, feeds: Mapping[str, Array], threads: int
) -> dict[str, float]:
    """The relative error of each run's outputs (``relative_error``) to what the model means.

    Args:
        runs: by name.
        model: the ONNX file.
        feeds: an array for each of its inputs.
        threads: of the reference.

    Returns:
        The errors by name; empty, with a warning, if the reference cannot run the model.
    """
    try:
        right = ReferenceModel(model, threads=threads)(feeds)
    except SartorError as error:
        _LOG.warning("how exact the runtimes are is not known: %s", error)
        return {}
    scales = scales_of(right)
    return {name: relative_error(run(), right, scales=scales) for name, run in runs.items()}
