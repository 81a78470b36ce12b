"""Cost tables: what measurements say about variants and conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sartor.codegen.analysis.integer_ranges import integer_ranges
from sartor.codegen.analysis.rounded_result import steps_of
from sartor.codegen.analysis.sized_task import facts_at, integers_at, mean_facts
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.encoding import row_of_parts
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.variants.descriptor import device_in
from sartor.codegen.ir.variants.rounding import rounding_of
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.adapts import AdaptKind
from sartor.devices import CPU, CUDA, VULKAN
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, CaseCall
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.transfers.times import Transfers

# Bandwidth assumed for adapts that are not measured, reads and writes together, in bytes per second. It is above what
# the device can do, so that no plan is missed because of an estimate that is too high.
_OPTIMISTIC_BANDWIDTH = {CPU: 400e9, VULKAN: 4e12, CUDA: 2e13}

# Of bf16.
_ROUNDOFF = 2.0**-8
# Of what was not measured: what it is for the largest tiles, docs/records/kernels.md.
_MOST_EXCESS = 10.0


@dataclass(frozen=True)
class Tables:
    """Measured and estimated costs of variants and conversions.

    Attributes:
        variants: candidates of each task, by task key, candidate 0 first.
        measured: measurements by case key and descriptor.
        adapts: measured seconds of conversions; infinite for those that do not work.
        peak: f32 operations per second that the machine does at most, None if not measured.
        scratch: bytes that variants need while they run, by task key and descriptor; others are unknown.
        starting: seconds that a variant takes longer when it runs for the first time, by task key and descriptor; 0 for
            others.
        loading: bandwidth of the first read of a file, in bytes per second; None if not measured.
        rounding: relative error of the network's outputs if one layer computes in a narrower type, by the layer's name
            and what is rounded, as ``rounding_of`` says.
        propagated_fraction: fraction of the kernels' own error, beyond rounding their operands, that reaches the
            outputs.
        transfers: times of transfers between devices; no tensor crosses between others.
        basis: what the times come from, in words, if they were not measured on this machine; else empty.
        calls: with which sizes a network for any size is called; times are the means of these calls'.
    """

    variants: Mapping[str, tuple[Variant, ...]]
    measured: Mapping[str, Mapping[str, Measurement]]
    adapts: Mapping[AdaptKind, float] = field(default_factory=dict)
    peak: float | None = None
    scratch: Mapping[tuple[str, str], int] = field(default_factory=dict)
    starting: Mapping[tuple[str, str], float] = field(default_factory=dict)
    loading: float | None = None
    rounding: Mapping[tuple[str, str], float] = field(default_factory=dict)
    propagated_fraction: float = 1.0
    transfers: Transfers = field(default_factory=dict)
    basis: str = ""
    calls: tuple[SizedCall, ...] = ()

    def with_adapts(self, other: Tables) -> Tables:
        """These tables with the conversions that only the other ones contain."""
        return replace(self, adapts={**other.adapts, **self.adapts})

    def usable(self, key: str) -> list[tuple[Variant, Measurement]]:
        """Variants of a task that compiled, ran and were right."""
        measurements = self.measured.get(key, {})
        return [
            (variant, measurements[variant.descriptor])
            for variant in self.variants[key]
            if variant.descriptor in measurements and measurements[variant.descriptor].status is Status.OK
        ]

    def error(self, layer: Layer, variant: Variant, measurement: Measurement) -> float:
        """Error of the outputs that a variant causes; its own measured error if that is not known."""
        known = self.sensitivity(layer, variant)
        return measurement.error or 0.0 if known is None else known

    def sensitivity(self, layer: Layer, variant: Variant) -> float | None:
        """Error of the outputs that a variant in a narrower type causes; None if not known."""
        rounding = self.rounded(layer, variant)
        return None if rounding is None else rounding * self.excess(layer.task.key, variant)

    def rounded(self, layer: Layer, variant: Variant) -> float | None:
        """Error of the outputs from rounding a layer's values, and filters if stored so, without the kernel's own."""
        return self.rounding.get((layer.name, rounding_of(variant)), self.rounding.get((layer.name, variant.dtype)))

    def excess(self, key: str, variant: Variant) -> float:
        """Ratio of a variant's error at the outputs to that of rounding the layer's values alone."""
        return 1 + self.propagated_fraction * (self._excess_alone(key, variant) - 1)

    def _excess_alone(self, key: str, variant: Variant) -> float:
        """Ratio of a variant's error at its own results to that of rounding the layer's values alone.

        It exceeds 1 for variants that round inside the kernel; the others of the same type are the reference.
        """
        if not variant.traits.rounds_between:
            return 1.0
        usable, rounding = self.usable(key), rounding_of(variant)
        alike = [
            (other, measurement.error)
            for other, measurement in usable
            if rounding_of(other) == rounding and measurement.error
        ]
        own = [error for other, error in alike if other.descriptor == variant.descriptor]
        others = [error for other, error in alike if not other.traits.rounds_between]
        return max(1.0, own[0] / max(others, default=_ROUNDOFF)) if own else _MOST_EXCESS

    def most_excess(self, key: str, dtype: str) -> float:
        """The largest excess among the usable variants of a type."""
        return max(
            (self.excess(key, variant) for variant, _ in self.usable(key) if variant.dtype == dtype), default=1.0
        )

    def seconds(self, key: str, descriptor: str) -> float | None:
        """Time of a variant, corrected for the drift of the machine between runs."""
        measurements = self.measured.get(key, {})
        measurement = measurements.get(descriptor)
        if measurement is None or measurement.status is not Status.OK:
            return None
        baseline = measurements.get(self._first(key, device_in(descriptor)).descriptor)
        if baseline is None or baseline.status is not Status.OK or baseline is measurement:
            return measurement.time
        return measurement.time_at(baseline.time)

    def _first(self, key: str, device: str) -> Variant:
        """Candidate 0 of a device, beside which its other variants were timed."""
        variants = self.variants[key]
        return next((variant for variant in variants if device_in(variant.descriptor) == device), variants[0])


def adapt_seconds(kind: AdaptKind, tables: Tables) -> float:
    """Seconds of a conversion, measured or an optimistic estimate; 0 if it moves no bytes.

    If it crosses, the transfer of the tensor as it is, which is always measured, and the conversion where it arrives.
    """
    moved = transfer_seconds(kind.logical, kind.source, kind.target.device, tables) if kind.crosses else 0.0
    return moved + local_seconds(kind, tables)


def local_seconds(kind: AdaptKind, tables: Tables) -> float:
    """Seconds of the part of a conversion that a device computes."""
    local = kind.local
    if local is None or local.is_free:
        return 0.0
    known = tables.adapts.get(local)
    return 2 * _bytes(kind, tables) / _OPTIMISTIC_BANDWIDTH[local.source.device] if known is None else known


def _bytes(kind: AdaptKind, tables: Tables) -> float:
    """Bytes of a tensor that is converted, in the mean over calls if its size is known only when it runs."""
    if kind.dims is None or not tables.calls:
        return kind.logical.bytes
    return sum(call.share * kind.logical.at(call.by_name).bytes for call in tables.calls)


def transfer_seconds(logical: TensorType, source: Schema, device: str, tables: Tables) -> float:
    """Seconds in which a tensor in a schema goes to another device; infinite if no tensor does."""
    times = tables.transfers.get((source.device, device))
    return math.inf if times is None else times.seconds(source.physical(logical).bytes)


def least_seconds(graph: LayerGraph, tables: Tables) -> float:
    """Seconds of a network's layers, each by its fastest variant, conversions left out."""
    times = {key: [measured.time for _, measured in tables.usable(key)] for key in tables.variants}
    return sum(min(times[layer.task.key], default=0.0) for layer in graph.layers)


def tuned_cases(graph: LayerGraph, variants: Mapping[str, tuple[Variant, ...]]) -> list[BenchmarkCase]:
    """All tasks of the graph with their candidates, as cases to measure, but fused ones without kernels."""
    return [
        _tuned_case(task, variants[key], graph.calls)
        for key, task in graph.tasks().items()
        if len(variants[key]) > (1 if task.stages else 0)
    ]


def _tuned_case(task: Task, variants: tuple[Variant, ...], calls: Sequence[SizedCall]) -> BenchmarkCase:
    """A task as a case: one of open sizes with the calls that count."""
    case = BenchmarkCase(
        *(task.key, task.inputs, task.weights, task.results),
        variants=variants,
        facts=task_facts(task),
        integers=integer_ranges(task),
        step=sum(steps_of(task)),
        row_of_parts=row_of_parts(task),
    )
    if task.opened is None or not calls:
        return case
    sized = [CaseCall(call, facts_at(task, call.by_name), integers_at(task, call.by_name)) for call in calls]
    return replace(case, facts=mean_facts([(call.of.share, call.facts) for call in sized]), calls=tuple(sized))
