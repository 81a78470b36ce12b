"""What rounding layers of one network does to its outputs, found out once and remembered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from sartor.config import CompileConfig
from sartor.frontend.imported_model import Front
from sartor.precision.calibration import Calibration
from sartor.precision.fake_quantisation import I8
from sartor.precision.sensitivity import RoundingTrial
from sartor.precision.sensitivity_cache import Findings
from sartor.progress import Progress, silent
from sartor.tuning.errors.error_sum import layer_error, layer_measure
from sartor.tuning.workers.pool import WorkerPool

# A plan is simulated on more samples than a single layer: there are many layers.
_SAMPLES_TOGETHER = 16
_MOST_SAMPLES_ALONE = 8
_RUNS_ALONE = 256

Pair = tuple[str, str]
"""A layer's name, and a narrower element type."""


@dataclass(frozen=True)
class Sensitivities:
    """Simulates rounding in ONNX Runtime.

    Attributes:
        front: the model.
        calibration: samples, tensors and ranges.
        config: settings.
        pool: where ONNX Runtime runs.
        progress: told about every inference.
    """

    front: Front
    calibration: Calibration
    config: CompileConfig
    pool: WorkerPool
    progress: Progress = silent

    def together(self, assignment: Mapping[str, str]) -> float:
        """The error, by the user's measure, if layers compute in the types they are assigned; 0 if there are none.

        Raises:
            UsageError: if the samples cannot be read, or the user's measure fails on them.
            CompileError: if the worker dies.
        """
        if not assignment:
            return 0.0
        measure = self.config.error_measure
        name = " ".join(f"{layer}={dtype}" for layer, dtype in sorted(assignment.items()))
        key = self._key("together", measure.identity, str(_SAMPLES_TOGETHER))
        known = self._findings.get(*key).get(name)
        if known is None:
            trial = replace(self._trial, measure=measure, most_samples=_SAMPLES_TOGETHER)
            (found,) = trial.together([assignment])
            known = found.samples
            self._findings.put({name: known}, *key)
        return measure.of_samples(known)

    def contributions(self, pairs: Collection[Pair], *, roughly: bool = False) -> dict[Pair, float]:
        """The relative error of the outputs if one layer computes in a type and all others exactly.

        Args:
            pairs: what is asked for; what cannot be simulated is not in the result.
            roughly: on one sample only.

        Raises:
            UsageError, CompileError: as ``together``.
        """
        measure = layer_measure(self.config.error_measure)
        count = 1 if roughly else min(max(_RUNS_ALONE // max(len(pairs), 1), 1), _MOST_SAMPLES_ALONE)
        key = self._key("alone", measure.identity, str(count))
        known = self._findings.get(*key)
        missing = [pair for pair in sorted(pairs) if _named(pair) not in known]
        if missing:
            trial = replace(self._trial, measure=measure, most_samples=count)
            found = trial.contributions(missing)
            # What cannot be simulated has no numbers, and is known to have none.
            known |= {_named(pair): found[pair].samples if pair in found else () for pair in missing}
            self._findings.put(known, *key)
        errors = {pair: known[_named(pair)] for pair in sorted(pairs)}
        return {pair: layer_error(self.config.error_measure, max(each)) for pair, each in errors.items() if each}

    @property
    def _findings(self) -> Findings:
        return Findings.beside(self.config.database)

    def _key(self, *what: str) -> tuple[str, ...]:
        method = self.config.calibration_method.value if I8 in self.calibration.dtypes else ""
        return (*what, self.front.sha256, self.calibration.samples.digest, method)

    @property
    def _trial(self) -> RoundingTrial:
        return RoundingTrial(
            self.front.prepared,
            [self.calibration.tensors[layer.name] for layer in self.front.graph.layers],
            self.calibration.dtypes,
            self.calibration.forms,
            self.calibration.samples.source,
            self.pool,
            threads=self.config.threads,
            progress=self.progress,
        )


def _named(pair: Pair) -> str:
    return "=".join(pair)
