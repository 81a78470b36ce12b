"""The machine's own limits, measured like any layer: f32 multiply-adds and reading from memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.vector.peak import MultiplyAdds, Reading, Roofline
from sartor.codegen.mlir.machine import machine_of
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.hardware import last_level_cache
from sartor.tuning.records.measurement import Measurement, Status

Measured: TypeAlias = Mapping[str, Mapping[str, Measurement]]

# At two multiply-adds a cycle these are some milliseconds of each thread, far longer than a call takes, in parts that
# are small enough for all threads to end together.
_MULTIPLY_ADDS = 1 << 19
_GROUPS_PER_THREAD = 64
# What is read must come from memory, not from a cache.
_LEAST_BYTES = 256 << 20
_MOST_BYTES = 1 << 30
_GROUP_BYTES = 1 << 20


@dataclass(frozen=True)
class Limit:
    """Something to measure that does a known amount of work.

    Attributes:
        case: what is measured.
        amount: of what one run does, floating-point operations or bytes.
    """

    case: BenchmarkCase
    amount: int

    def per_second(self, measured: Measured) -> float | None:
        """The limit by measurements of cases, None if it was not measured or failed.

        Of all samples the fastest counts: a ceiling is what the machine can do, not what it does on the average.
        """
        measurement = measured.get(self.case.key, {}).get(self.case.variants[0].descriptor)
        if measurement is None or measurement.status is not Status.OK:
            return None
        return self.amount / min(measurement.samples)


def peak_operations(target: Target, threads: int) -> Limit:
    """f32 operations of a CPU, a multiply-add being two.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    machine = machine_of(target)
    chains = machine.accumulators
    code = MultiplyAdds(machine.lanes, chains, _MULTIPLY_ADDS // chains, _GROUPS_PER_THREAD * threads)
    return Limit(_case(Roofline("multiply_adds", code), target), code.operations)


def read_bandwidth(target: Target, size: int | None = None) -> Limit:
    """Bytes that a CPU reads from memory.

    Args:
        target: what to measure.
        size: bytes to read; twice the last-level cache, within reasonable bounds, if None.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    lanes = machine_of(target).lanes
    wanted = min(max(2 * last_level_cache(), _LEAST_BYTES), _MOST_BYTES) if size is None else size
    code = Reading.of(lanes, _GROUP_BYTES, max(1, wanted // _GROUP_BYTES))
    return Limit(_case(Roofline("read", code), target), code.source.bytes)


def _case(roofline: Roofline, target: Target) -> BenchmarkCase:
    task = roofline.task
    return BenchmarkCase(task.key, task.inputs, task.weights, task.results, (roofline.variant(target),))
