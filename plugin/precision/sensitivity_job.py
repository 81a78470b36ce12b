"""Worker side of sensitivity: runs a model with switches, and measures the errors of its outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from onnx import ModelProto

from sartor.errors import SartorError
from sartor.precision.precision_switches import PrecisionSwitches, add_switches
from sartor.reference.expected_outputs import Disturbed
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.samples.given_samples import SampleSource
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.workers.calls import WorkerError

Assignment = Mapping[str, str]
"""Layer name to the element type in which the layer computes; other layers compute in the model's types."""


@dataclass(frozen=True)
class Experiment:
    """The assignments of types to layers whose errors are measured.

    Attributes:
        prepared: file of the prepared model.
        switches: the layers that can be switched, with their types.
        assignments: each is run on every sample.
        samples: inputs.
        count: number of samples to use.
        measure: of the outputs' error.
        threads: as for ``OnnxRuntimeReference``.
    """

    prepared: Path
    switches: PrecisionSwitches
    assignments: Sequence[Assignment]
    samples: SampleSource
    count: int
    measure: ErrorMeasure
    threads: int | None

    @property
    def runs(self) -> int:
        """Number of runs, one for each sample and assignment; assignments vary fastest."""
        return self.count * len(self.assignments)


@dataclass(frozen=True)
class Rounded:
    """Errors of the first runs of an experiment."""

    errors: tuple[float, ...] = ()

    @property
    def done(self) -> int:
        """Number of runs that are done."""
        return len(self.errors)


def round_layers(experiment: Experiment, before: Rounded, seconds: float) -> Rounded | WorkerError:
    """Make further runs after those in ``before``, at least one, until ``seconds`` have passed."""
    try:
        errors = _errors_from(experiment, before.done, time.monotonic() + seconds)
    except SartorError as error:
        return WorkerError(error)
    found = Rounded((*before.errors, *errors))
    if found.done == experiment.runs:
        _session.cache_clear()
    return found


def _errors_from(experiment: Experiment, start: int, deadline: float) -> list[float]:
    run, precision, disturbed = _session(experiment.prepared, experiment.switches, experiment.threads)
    switches, assignments = experiment.switches, experiment.assignments
    sample, first = divmod(start, len(assignments))
    errors: list[float] = []
    for feeds in experiment.samples.since(sample):
        expected = run({**feeds, precision: switches.codes({})})
        scales = disturbed.scales(expected, disturbed(feeds))
        for assignment in assignments[first:]:
            outputs = run({**feeds, precision: switches.codes(assignment)})
            errors.append(experiment.measure.of_sample(outputs, expected, scales))
            if time.monotonic() >= deadline:
                return errors
        if start + len(errors) == experiment.runs:
            break
        first = 0
    return errors


# Calls of one experiment follow each other in one worker, and share the session. The last call frees it.
@lru_cache(maxsize=1)
def _session(
    prepared: Path, switches: PrecisionSwitches, threads: int | None
) -> tuple[OnnxRuntimeReference, str, Disturbed]:
    model = ModelProto.FromString(prepared.read_bytes())
    disturbed = Disturbed(model, threads=threads, narrow=True)
    precision = add_switches(model, switches)
    return OnnxRuntimeReference(model.SerializeToString(), threads=threads), precision, disturbed
