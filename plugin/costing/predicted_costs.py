"""Costs for a target that cannot be measured here: measured on another machine where the database has it, or predicted.

A database has measurements of other machines if they were imported (``sartor db import``). They count if they are of
the same code for the same target, runtime and number of threads. Of several such machines only the one that measured
most counts: times of unlike machines cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from sartor.codegen.ir.layouts import PLAIN, PLAIN_IMAGE
from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import PlanPolicy
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import NO_TIME, Measurement, MeasurementKey, Status
from sartor.tuning.search.cost_model import CostModel, Sample, is_readable, samples_of
from sartor.tuning.search.features import analytic_seconds, seconds_of_all

# Of a tensor and its conversion, that the last level of a CPU's caches holds.
_CACHED_BYTES = 8 << 20
# As many conversions as kinds of layers tell how predictions err.
_TELLING = 4
# Seconds; a measurement is more than zero.
_LEAST = 1e-9

Measured = dict[str, dict[str, Measurement]]


@dataclass(frozen=True)
class PredictedCosts:
    """Costs of a target, for those who otherwise ask a tuner.

    Attributes:
        tuner: names measurements; it measures nothing.
        core: the target's core.
        machine: the machine whose measurements count; empty if there is none.
        known: its measurements.
    """

    tuner: Tuner
    core: Core
    machine: str = ""
    known: Mapping[MeasurementKey, Measurement] = field(default_factory=dict)
    is_late: bool = False

    @staticmethod
    def of(tuner: Tuner, cases: Sequence[BenchmarkCase]) -> PredictedCosts:
        """The costs of a tuner's target, by what its store has of other machines about ``cases``."""
        wanted = {_anywhere(tuner.key(case, variant.descriptor)) for case in cases for variant in case.variants}
        here = tuner.key(cases[0], cases[0].variants[0].descriptor) if cases else None
        machines: dict[str, dict[MeasurementKey, Measurement]] = {}
        for measurement in tuner.store.measurements():
            if here is not None and _conditions(measurement.key) == _conditions(here) and not measurement.is_transient:
                machines.setdefault(measurement.key.hardware, {})[_anywhere(measurement.key)] = measurement
        counts = {name: len(wanted & measurements.keys()) for name, measurements in machines.items()}
        best = max(sorted(counts), key=counts.__getitem__, default="")
        core = core_of(tuner.target)
        if not counts.get(best):
            return PredictedCosts(tuner, core)
        return PredictedCosts(tuner, core, best, machines[best])

    @property
    def target(self) -> Target:
        """What the costs are of."""
        return self.tuner.target

    def is_quiet(self) -> bool:
        """Never: nothing is measured here, so that nothing can be measured again."""
        return False

    def measure_anew(self, cases: Iterable[BenchmarkCase]) -> None:
        """Nothing, as nothing is measured here."""

    def measure(self, cases: Iterable[BenchmarkCase]) -> Measured:
        """Measurements of conversions by case key and descriptor, predicted where the database has none."""
        predicted: Measured = {}
        for case in cases:
            own = self.measured_elsewhere(case)
            (variant,) = case.variants
            seconds = converting_seconds(case, self.core)
            predicted[case.key] = own or {variant.descriptor: self._predicted(case, variant, seconds)}
        return predicted

    def measured_elsewhere(self, case: BenchmarkCase) -> dict[str, Measurement]:
        """Measurements of a case's variants on the other machine, by descriptor."""
        keys = {variant.descriptor: _anywhere(self.tuner.key(case, variant.descriptor)) for variant in case.variants}
        return {name: self.known[key] for name, key in keys.items() if key in self.known}

    def of_layers(self, cases: Sequence[BenchmarkCase]) -> Measured:
        """Measurements of tasks by key and descriptor. A task of which a variant works has only measured ones, any
        other has predictions, by a model that is learned from what was measured if that is enough."""
        measured = {case.key: self.measured_elsewhere(case) for case in cases}
        model = CostModel.fit(samples_of(self.known.values()), core=self.core.comparable)
        scale = self._scale()
        return {
            case.key: measured[case.key]
            if any(measurement.status is Status.OK for measurement in measured[case.key].values())
            else dict(self._predictions(case, measured[case.key], model, scale))
            for case in cases
        }

    def _predictions(
        self, case: BenchmarkCase, known: Mapping[str, Measurement], model: CostModel | None, scale: float
    ) -> Iterator[tuple[str, Measurement]]:
        """Predictions for the variants that did not fail elsewhere."""
        variants = [variant for variant in case.variants if variant.descriptor not in known]
        described = [variant.described for variant in variants]
        if model is not None:
            seconds = model.seconds(case.facts, described)
        else:
            seconds = [scale * time for time in seconds_of_all(case.facts, described, self.core)]
        # Every dispatch costs as much, which counts where several layers may be one.
        start = self.core.dispatch_cycles / self.core.hertz
        for variant, one in zip(variants, seconds, strict=True):
            yield variant.descriptor, self._predicted(case, variant, NO_TIME if variant.traits.is_free else one + start)

    def _scale(self) -> float:
        """How many times longer variants take on the other machine than the analytic model says."""
        samples = filter(is_readable, filter(None, map(Sample.of, self.known.values())))
        return median(
            [sample.seconds / analytic_seconds(sample.facts, sample.variant, self.core) for sample in samples] or [1]
        )

    def _predicted(self, case: BenchmarkCase, variant: Variant, seconds: float) -> Measurement:
        return _prediction(self.tuner, case, variant, seconds)


@dataclass(frozen=True)
class TimelyConversions:
    """Conversions that a tuner measures while there is time; those that it does not reach get the model's times.

    Attributes:
        tuner: measures them.
        core: of the tuner's target.
        predicts: whether only those of the first plan that take longest are measured, as layers have guesses, which
            err by more. They tell how many times as long as by the model others take.
        least: seconds; if those of the first plan take less together by the model, they are not measured either. That
            plan is the best where conversions take the least they can, so no other is faster by more than its own take.
    """

    tuner: Tuner
    core: Core
    predicts: bool = False
    least: float = 0.0
    _paces: list[float] = field(default_factory=list, init=False)

    @property
    def target(self) -> Target:
        """The tuner's."""
        return self.tuner.target

    @property
    def is_late(self) -> bool:
        """Whether nothing more is measured."""
        return self.tuner.is_late

    def is_quiet(self) -> bool:
        """As the tuner's."""
        return self.tuner.is_quiet()

    def measure_anew(self, cases: Iterable[BenchmarkCase]) -> None:
        """Measure what was measured before, until the deadline."""
        self.tuner.measure_anew(cases)

    def measure(self, cases: Iterable[BenchmarkCase]) -> Measured:
        """Measurements by case key and descriptor, predicted where there is none."""
        listed = list(cases)
        predicted = {case.key: converting_seconds(case, self.core) for case in listed}
        measured_by_case = self.tuner.known(listed) if self.predicts else self.tuner.measure(listed)
        if self.predicts and not self._paces:
            measured_by_case |= self._told(listed, predicted)
        pace = median(self._paces or [1.0])
        for case in listed:
            (variant,) = case.variants
            if variant.descriptor not in measured_by_case[case.key]:
                seconds = pace * predicted[case.key]
                measured_by_case[case.key][variant.descriptor] = _prediction(self.tuner, case, variant, seconds)
        return measured_by_case

    def _told(self, cases: Sequence[BenchmarkCase], predicted: Mapping[str, float]) -> Measured:
        """Measurements of those of the first plan's conversions that are measured, which tell the pace."""
        if sum(predicted[case.key] for case in cases) < self.least:
            self._paces.append(1.0)
            return {}
        told = self.tuner.measure(sorted(cases, key=lambda case: -predicted[case.key])[:_TELLING])
        times = [(key, measurement) for key, measured in told.items() for measurement in measured.values()]
        self._paces.extend(
            measurement.time / predicted[key] for key, measurement in times if measurement.status is Status.OK
        )
        return told


def converting_seconds(case: BenchmarkCase, core: Core) -> float:
    """Seconds that a conversion, which is a case of one variant, takes by the model of a core.

    What a layer has just written is in a CPU's caches, but for the largest tensors. One of any size takes the mean of
    its calls.
    """
    if case.calls:
        return sum(call.of.share * converting_seconds(case.at(call), core) for call in case.timed)
    (tensor,), (variant,) = case.inputs, case.variants
    code = variant.implementation
    moved = code.inputs[0].physical(tensor).bytes + code.output.physical(tensor).bytes
    are_planes = {code.inputs[0].layout, code.output.layout} & {PLAIN_IMAGE, PLAIN}
    cycles_each = core.element_cycles if are_planes else core.channel_cycles
    far = moved if core.gpu else max(0, moved - _CACHED_BYTES)
    cycles = max(tensor.elements * cycles_each, far / core.bytes_per_cycle)
    return (cycles + core.conversion_cycles) / core.hertz


def _prediction(tuner: Tuner, case: BenchmarkCase, variant: Variant, seconds: float) -> Measurement:
    packed, key = case.packed_bytes(variant), tuner.key(case, variant.descriptor)
    return Measurement(key, Status.OK, (max(seconds, _LEAST),), packed_bytes=packed, facts=case.facts)


def predicted_tables(
    imported: ImportedModel, candidates: Candidates, tuner: Tuner, policy: PlanPolicy
) -> tuple[Tables, PredictedCosts]:
    """Cost tables of all tasks for a target that cannot be measured here, and the costs that they come from.

    The tables say what they are based on. Nothing is stored.

    Args:
        imported: the model.
        candidates: variants of each task.
        tuner: for the target; it measures nothing.
        policy: of the plan.
    """
    cases = tuned_cases(imported.graph, candidates.variants)
    costs = PredictedCosts.of(tuner, cases)
    measured = costs.of_layers(cases)
    return Tables(candidates.variants, measured, basis=_basis(costs, cases), calls=imported.graph.calls), costs


def _basis(costs: PredictedCosts, cases: Sequence[BenchmarkCase]) -> str:
    """What the times come from, in words."""
    are_measured = [any(one.status is Status.OK for one in costs.measured_elsewhere(case).values()) for case in cases]
    if not any(are_measured):
        return f"predicted by the cost model for {costs.target.architecture}, nothing was measured"
    rest = (
        ""
        if all(are_measured)
        else f", {sum(are_measured)} of {len(are_measured)} kinds of layers, the others predicted"
    )
    return f"measured on another machine, {costs.machine}{rest}"


def _anywhere(key: MeasurementKey) -> MeasurementKey:
    """The key without the machine."""
    return replace(key, hardware="")


def _conditions(key: MeasurementKey) -> tuple[int, str, str]:
    """What has to be equal for times to be comparable, besides the machine."""
    return key.threads, key.runtime, key.backend
