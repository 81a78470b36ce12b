"""Worker side of sensitivity: runs a model with switches, and measures the errors of its outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sartor.errors import SartorError
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.precision.precision_switches import PrecisionSwitches, add_switches
from sartor.reference.expected_outputs import Disturbed, Expected, KnownOutputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.samples.given_samples import SampleSource
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.workers.protocol import WorkerError

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
        threads: as for ``ReferenceModel``.
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
    """Make further runs after those in ``before``, at least one, until ``seconds`` have passed.

    Where loading the model takes longer, runs take as long as that: the next call may have to load it again.
    """
    try:
        errors = _errors_from(experiment, before.done, seconds)
    except SartorError as error:
        return WorkerError(error)
    rounded = Rounded((*before.errors, *errors))
    if rounded.done == experiment.runs:
        _running(experiment.prepared, experiment.switches, experiment.threads).unload()
    return rounded


def _errors_from(experiment: Experiment, start: int, seconds: float) -> list[float]:
    begin = time.monotonic()
    running = _running(experiment.prepared, experiment.switches, experiment.threads)
    deadline = (loaded := time.monotonic()) + max(seconds, loaded - begin)
    sample, first = divmod(start, len(experiment.assignments))
    errors: list[float] = []
    for feeds in experiment.samples.since(sample):
        right = running.right(feeds)
        for assignment in experiment.assignments[first:]:
            errors.append(
                experiment.measure.of_sample(running(feeds, assignment), right.outputs, right.scales, running.names)
            )
            if time.monotonic() >= deadline:
                return errors
        if start + len(errors) == experiment.runs:
            break
        first = 0
    return errors


class _Running:
    """A model with switches in ONNX Runtime, and its results without rounding, which take five inferences."""

    def __init__(self, prepared: Path, switches: PrecisionSwitches, threads: int | None) -> None:
        model = prepared_model(prepared)
        self._switches, self._known = switches, KnownOutputs()
        self._prepared, self._threads = prepared, threads
        self._disturbed: Disturbed | None = Disturbed(model, threads=threads, narrow=True)
        self._precision = add_switches(model, switches)
        self._reference = ReferenceModel(model.SerializeToString(), threads=threads)

    def __call__(self, feeds: Mapping[str, Array], assignment: Assignment) -> list[Array]:
        """The outputs with layers rounded to types."""
        return self._reference({**feeds, self._precision: self._switches.codes(assignment)})

    @property
    def names(self) -> Sequence[str]:
        """The names of the outputs."""
        return self._reference.output_names

    def right(self, feeds: Mapping[str, Array]) -> Expected:
        """The outputs of a sample without rounding, and their scales."""
        return self._known.of(feeds, self._computed)

    def unload(self) -> None:
        """Free the memory of models that are not needed for samples that are known."""
        self._disturbed = None

    def _computed(self, feeds: Mapping[str, Array]) -> Expected:
        if self._disturbed is None:
            self._disturbed = Disturbed(self._prepared, threads=self._threads, narrow=True)
        outputs = self(feeds, {})
        return Expected(outputs, self._disturbed.scales(outputs, self._disturbed(feeds)))


# Calls of one experiment follow each other in one worker, as do experiments with plans, and share what runs.
@lru_cache(maxsize=1)
def _running(prepared: Path, switches: PrecisionSwitches, threads: int | None) -> _Running:
    return _Running(prepared, switches, threads)
