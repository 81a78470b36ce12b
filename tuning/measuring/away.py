"""Measuring where there is no ONNX Runtime: who can tell which variants are right is asked here, and the answer sent.

A worker on another machine has the runtime half only. It measures without the layer's arbiter. Only if the variants'
results disagree, the arbiter's results are computed where the model is, and the case is measured again with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.ir.variants.traits import PLAIN_TRAITS
from sartor.runtime.driver.signature import Array
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.checking import Arbiter
from sartor.tuning.measuring.measure_job import MeasureSettings, VariantSamples, measure_case
from sartor.tuning.records.measurement import Status, typical_time


class ArbiterWantedError(Exception):
    """Variants disagree, and the arbiter is elsewhere."""


@dataclass(frozen=True)
class ArbiterWanted:
    """The answer that a case cannot be judged without its arbiter."""


@dataclass(frozen=True)
class AbsentArbiter:
    """An arbiter that is not here."""

    layer: str

    def weights(self) -> list[Array]:
        """Nothing: the arbiter must be asked.

        Raises:
            ArbiterWantedError: always.
        """
        raise ArbiterWantedError

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        """As ``weights``."""
        raise ArbiterWantedError


@dataclass(frozen=True, eq=False)
class GivenArbiter:
    """What an arbiter answered about one case, whose inputs are the same on every machine."""

    layer: str
    given_weights: list[Array]
    given_results: list[Array] | None

    def weights(self) -> list[Array]:
        """The layer's own weights, in ONNX layout."""
        return self.given_weights

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        """The reference results for the case's inputs."""
        return self.given_results


@dataclass(frozen=True)
class CompiledCode(Implementation):
    """Code that was compiled: without what it is emitted from, which only the compiler can read.

    Attributes:
        known_digest: of the code that was compiled.
    """

    known_digest: str = ""

    @cached_property
    def digest(self) -> str:
        """Hash of all that was emitted."""
        return self.known_digest


def runnable(case: BenchmarkCase) -> BenchmarkCase:
    """A compiled case as far as it matters where it runs."""
    return replace(case, variants=tuple(map(_runnable, case.variants)))


def _runnable(variant: Variant) -> Variant:
    code = variant.implementation
    kept = CompiledCode(
        body="",
        inputs=code.inputs,
        outputs=code.outputs,
        packings=code.packings,
        ranges=code.ranges,
        step=code.step,
        known_digest=code.digest,
    )
    return replace(variant, implementation=kept, traits=replace(PLAIN_TRAITS, weights=variant.traits.weights))


def absent(arbiter: Arbiter | None) -> AbsentArbiter | None:
    """What takes an arbiter's place elsewhere."""
    return None if arbiter is None else AbsentArbiter(arbiter.layer)


def measure_away(
    case: BenchmarkCase,
    modules: Mapping[str, Path],
    settings: MeasureSettings,
    probe: Path,
    arbiter: AbsentArbiter | GivenArbiter | None = None,
) -> dict[str, VariantSamples] | ArbiterWanted:
    """Worker side: as ``measure_case``, unless the arbiter must be asked first."""
    try:
        return measure_case(case, modules, settings, probe, arbiter)
    except ArbiterWantedError:
        return ArbiterWanted()


def arbitrate(case: BenchmarkCase, arbiter: Arbiter) -> GivenArbiter:
    """Worker side, where the model is: the arbiter's answer about a case."""
    weights = arbiter.weights()
    return GivenArbiter(arbiter.layer, weights, arbiter.results(CaseData(case, weights).inputs))


def only_seconds(samples: Mapping[str, VariantSamples] | ArbiterWanted) -> float | None:
    """The time of the only variant that was measured."""
    if isinstance(samples, ArbiterWanted):
        return None
    (only,) = samples.values()
    return typical_time(only.samples) if only.status is Status.OK else None
