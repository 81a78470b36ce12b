"""Simulates rounding of layers to narrower element types, in a network that ONNX Runtime runs.

One layer at a time is rounded in an otherwise exact network, and the outputs are compared. The result thus includes how
later layers amplify or damp the error (as in HAWQ and SoftNeuro's accuracy budget, but measured instead of estimated).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.frontend.layer_tensors import LayerTensors
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.precision.precision_switches import PrecisionSwitches
from sartor.precision.sensitivity_job import Assignment, Experiment, Rounded, round_layers
from sartor.progress import Progress, silent
from sartor.samples.given_samples import SampleSource
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.workers.calls import as_file, call_until_done
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.shared_arrays import StoredArrays

MOST_SAMPLES = 8
_STEP = "measuring what rounding does"


@dataclass(frozen=True)
class RoundingErrors:
    """Errors of the model's outputs, one for each sample."""

    samples: tuple[float, ...]


@dataclass(frozen=True)
class RoundingTrial:
    """Measures how rounding in layers changes the outputs.

    Attributes:
        prepared: the prepared model, or the file that holds it.
        layers: names of each layer's values in the model.
        dtypes: of ``tf32``, ``bf16``, ``f16`` and ``i8``.
        ranges: the 8-bit range of tensors, for ``i8``.
        samples: inputs; at most the first ``most_samples`` are used.
        pool: where ONNX Runtime runs: the model is not trusted.
        measure: of the outputs' error, against those of the same model without rounding.
        most_samples: at least 1.
        threads: as for ``ReferenceModel``.
        progress: told the number of inferences that are done.
        rounded: as for ``Calibration``.
    """

    prepared: bytes | Path
    layers: Sequence[LayerTensors]
    dtypes: Sequence[str]
    ranges: Mapping[str, QuantisedRange]
    samples: SampleSource
    pool: WorkerPool
    measure: ErrorMeasure = RELATIVE
    most_samples: int = MOST_SAMPLES
    threads: int | None = None
    progress: Progress = silent
    rounded: StoredArrays | None = None

    def for_pairs(self, pairs: Collection[tuple[str, str]] | None = None) -> dict[tuple[str, str], RoundingErrors]:
        """Errors of the outputs by layer name and type, if that layer alone computes in that type.

        Layers without switches are missing in the result, as are layers in ``i8`` that lack a range. ``pairs`` selects
        some; None means all.

        Raises:
            UsageError: if the samples cannot be read, or the model or measure fails on them.
            CompileError: if the worker dies.
        """
        with as_file(self.prepared) as path:
            switches = self._switches(path)
            listed = [pair for pair in switches.pairs if pairs is None or pair in pairs]
            assignments = [{layer: dtype} for layer, dtype in listed]
            return dict(zip(listed, self._errors(path, switches, assignments), strict=True)) if listed else {}

    def together(self, assignments: Sequence[Assignment]) -> list[RoundingErrors]:
        """Errors of the outputs for each assignment, its layers rounded together; layers without switches stay exact.

        Raises:
            UsageError, CompileError: as ``for_pairs``.
        """
        with as_file(self.prepared) as path:
            return self._errors(path, self._switches(path), assignments)

    def _switches(self, path: Path) -> PrecisionSwitches:
        model = prepared_model(path)
        return replace(PrecisionSwitches.of(model, self.layers, self.dtypes, self.ranges), rounded=self.rounded)

    def _errors(
        self, path: Path, switches: PrecisionSwitches, assignments: Sequence[Assignment]
    ) -> list[RoundingErrors]:
        count = min(len(self.samples), self.most_samples)
        experiment = Experiment(path, switches, assignments, self.samples, count, self.measure, self.threads)
        job, runs = {"experiment": experiment}, experiment.runs
        errors = call_until_done(self.pool, round_layers, job, Rounded(), runs, _STEP, progress=self.progress).errors
        return [RoundingErrors(errors[index :: len(assignments)]) for index in range(len(assignments))]
