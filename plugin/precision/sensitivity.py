"""Errors of a network's outputs when layers are rounded, simulated once and then read from the cache."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.analysis.task_facts import task_facts
from sartor.frontend.imported_model import ImportedModel
from sartor.precision.calibration import Calibration
from sartor.precision.rounding_trial import RoundingTrial
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.progress import Progress, silent
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.errors.error_sum import layer_error, layer_measure
from sartor.tuning.workers.pool import WorkerPool

# Plans are simulated on more samples than single layers, because there are many layers.
_SAMPLES_TOGETHER = 16
_MOST_SAMPLES_ALONE = 8
_RUNS_ALONE = 256
# Where there is no time, plans are simulated on as many samples as take so many operations, and on one at least: the
# outputs may be far more sensitive on one sample than on all others.
_HURRIED_OPERATIONS = 1 << 36

Pair = tuple[str, str]
"""A layer's name, and a narrower element type."""


@dataclass(frozen=True)
class Sensitivities:
    """Simulates rounding in ONNX Runtime.

    Attributes:
        imported: the model.
        calibration: samples, tensors and ranges.
        pool: where ONNX Runtime runs.
        measure: the user's measure of errors.
        threads: of ONNX Runtime.
        cache: stores the errors.
        progress: told about every inference.
        is_hurried: whether few samples have to do, as there is no time for more.
        others: the same of the network with other sizes; the largest error of all counts.
    """

    imported: ImportedModel
    calibration: Calibration
    pool: WorkerPool
    measure: ErrorMeasure
    threads: int
    cache: SensitivityCache
    progress: Progress = silent
    is_hurried: bool = False
    others: tuple[Sensitivities, ...] = ()

    def also_of(self, sized: Iterable[tuple[ImportedModel, Calibration]]) -> Sensitivities:
        """The same for a network of open sizes, of which some more are imported and calibrated."""
        others = (replace(self, imported=imported, calibration=calibration) for imported, calibration in sized)
        return replace(self, others=tuple(others))

    def together(self, assignment: Mapping[str, str]) -> float:
        """The error of the outputs, by the user's measure, with layers rounded to types by layer name; 0 for no layers.

        Raises:
            UsageError: if the samples cannot be read, or the user's measure fails on them.
            CompileError: if the worker dies.
        """
        if not assignment:
            return 0.0
        measure = self.measure
        name = " ".join(f"{layer}={dtype}" for layer, dtype in sorted(assignment.items()))
        count = self._hurried_samples if self.is_hurried else _SAMPLES_TOGETHER
        key = self._key("together", measure.identity, str(count))
        known = self.cache.get(*key).get(name)
        if not known:
            trial = replace(self._trial, measure=measure, most_samples=count)
            (errors,) = trial.together([assignment])
            known = errors.samples
            self.cache.put({name: known}, *key)
        return max(measure.of_samples(known), *(other.together(assignment) for other in self.others), 0.0)

    def for_pairs(self, pairs: Collection[Pair], *, roughly: bool = False) -> dict[Pair, float]:
        """The relative error of the outputs for each pair, if that layer alone computes in that type.

        Args:
            pairs: layers with types; pairs that cannot be simulated are missing in the result.
            roughly: simulate on one sample only.

        Raises:
            UsageError, CompileError: as ``together``.
        """
        measure = layer_measure(self.measure)
        count = 1 if roughly or self.is_hurried else min(max(_RUNS_ALONE // max(len(pairs), 1), 1), _MOST_SAMPLES_ALONE)
        key = self._key("alone", measure.identity, str(count))
        known = self.cache.get(*key)
        missing = [pair for pair in sorted(pairs) if _named(pair) not in known]
        if missing:
            trial = replace(self._trial, measure=measure, most_samples=count)
            simulated = trial.for_pairs(missing)
            # A pair that cannot be simulated gets an empty entry, so that it is not tried again.
            known |= {_named(pair): simulated[pair].samples if pair in simulated else () for pair in missing}
            self.cache.put(known, *key)
        samples = {pair: known[_named(pair)] for pair in sorted(pairs)}
        errors = {pair: layer_error(self.measure, max(error)) for pair, error in samples.items() if error}
        for other in self.others:
            for pair, error in other.for_pairs(pairs, roughly=roughly).items():
                errors[pair] = max(error, errors.get(pair, 0.0))
        return errors

    @property
    def _hurried_samples(self) -> int:
        tasks = [layer.task for layer in self.imported.graph.layers]
        operations = sum(kind_and_sizes(task_facts(task))[1]["operations"] for task in tasks)
        return max(1, min(_HURRIED_OPERATIONS // max(operations, 1), _SAMPLES_TOGETHER))

    def _key(self, *what: str) -> tuple[str, ...]:
        return (*what, self.imported.sha256, *self.calibration.key)

    @property
    def _trial(self) -> RoundingTrial:
        return RoundingTrial(
            self.imported.prepared,
            [self.calibration.tensors[layer.name] for layer in self.imported.graph.layers],
            self.calibration.dtypes,
            self.calibration.tensor_ranges,
            self.calibration.samples.source,
            self.pool,
            threads=self.threads,
            progress=self.progress,
            rounded=self.calibration.rounded,
        )


def _named(pair: Pair) -> str:
    return "=".join(pair)
